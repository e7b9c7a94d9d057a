"""What a client sends, changed on the way: a client built on another one."""

from abc import abstractmethod
from collections.abc import Sequence
from copy import copy

from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from lightning_fl.client.base import Client, ClientResult
from lightning_fl.network.parameters import flatten, trainable
from lightning_fl.round import Round
from lightning_fl.samples import ClientBatch
from lightning_fl.shares import floored


def kept(ratio: float, d: int) -> int:
    """How many of d entries a share of them is, at least one."""
    return max(1, floored(ratio, d))


class Wrapper(Client):
    """A client that changes what another one would send; virtual clients of the server, who send nothing, do not.

    Args:
        client: The client to wrap.
    """

    def __init__(self, client: Client):
        super().__init__(client.client_chunk)
        self.client = client

    @abstractmethod
    def send(self, rows: Float[Tensor, "h d"], ids: Sequence[int], this_round: Round) -> None:
        """Change what the wrapped client would send, in place.

        Args:
            rows: One row per client.
            ids: The clients' numbers.
            this_round: The current round.
        """

    @override
    def prepare(self, model: nn.Module, clients: ClientBatch) -> None:
        self.client.prepare(model, clients)

    @override
    def updates(
        self, model: nn.Module, batch: ClientBatch, this_round: Round, out: Tensor | None = None
    ) -> ClientResult:
        result = self.client.updates(model, batch, this_round, out)
        if all(client >= 0 for client in batch.ids):
            self.send(result.updates, batch.ids, this_round)
        return result

    @override
    def read(self, forged: Float[Tensor, "b d"], ids: Sequence[int], this_round: Round) -> Float[Tensor, "b d"]:
        return self.client.read(forged, ids, this_round)

    @override
    def without_momentum(self) -> Client:
        other = copy(self)
        other._modules = {"client": self.client.without_momentum()}
        return other

    @override
    def otherwise(self, learning_rate: float | None, epochs: int | None) -> Client:
        other = copy(self)
        other._modules = {"client": self.client.otherwise(learning_rate, epochs)}
        return other

    @override
    def upload_rate(self, this_round: Round) -> float:
        return self.client.upload_rate(this_round)

    @override
    def privacy(self, rounds: int) -> dict[str, float] | None:
        return self.client.privacy(rounds)

    @property
    def serves_server(self) -> bool:  # type: ignore[override]
        """Whether the wrapped client does."""
        return self.client.serves_server


class Compressor(Wrapper):
    """A client that compresses what another one would send, with error feedback: what it leaves out it sends later.

    With e_i = 0 at first, it sends C(e_i + x_i) and keeps e_i <- e_i + x_i - C(e_i + x_i): n d numbers in all.  An
    absent client keeps its e_i.

    Sebastian U. Stich, Jean-Baptiste Cordonnier, Martin Jaggi. Sparsified SGD with Memory. NeurIPS 2018.
    arXiv:1809.07599.
    Sai Praneeth Karimireddy, Quentin Rebjock, Sebastian U. Stich, Martin Jaggi. Error Feedback Fixes SignSGD and other
    Gradient Compression Schemes. ICML 2019. arXiv:1901.09847.

    Args:
        client: The client to wrap.
        feedback: Whether there is error feedback; without it e_i stays 0.
    """

    error: Tensor

    def __init__(self, client: Client, feedback: bool = True):
        super().__init__(client)
        self.feedback = feedback

    @abstractmethod
    def compress(self, row: Float[Tensor, " d"]) -> Float[Tensor, " d"]:
        """Compress one row; what is compressed already stays as it is."""

    @override
    def prepare(self, model: nn.Module, clients: ClientBatch) -> None:
        super().prepare(model, clients)
        if self.feedback:
            like = flatten(trainable(model).values())
            self.register_buffer("error", like.new_zeros(max(clients.ids) + 1, len(like)))

    @override
    def send(self, rows: Float[Tensor, "h d"], ids: Sequence[int], this_round: Round) -> None:
        for row, client in zip(rows, ids, strict=True):
            if not self.feedback:
                row.copy_(self.compress(row))
                continue
            whole = row + self.error[client]
            row.copy_(self.compress(whole))
            self.error[client] = whole - row

    @override
    def read(self, forged: Float[Tensor, "b d"], ids: Sequence[int], this_round: Round) -> Float[Tensor, "b d"]:
        read = super().read(forged, ids, this_round).clone()
        for row in read:
            row.copy_(self.compress(row))
        return read
