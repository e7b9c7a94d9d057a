"""Byrd-SAGA: stochastic gradients whose noise is reduced by a table of earlier ones.

Zhaoxian Wu, Qing Ling, Tianyi Chen, Georgios B. Giannakis. Federated Variance-Reduced Stochastic Gradient Descent with
Robustness to Byzantine Attacks. IEEE Transactions on Signal Processing 2020. arXiv:1912.12716.
"""

from math import inf
from typing import Annotated

import torch
from annotated_types import Gt, Le
from torch import Tensor, nn

from lightning_fl import seeding
from lightning_fl.client.base import Client, ClientResult, rows_of
from lightning_fl.errors import SettingError
from lightning_fl.network.parameters import flatten, trainable
from lightning_fl.ranges import PositiveInt
from lightning_fl.round import Round
from lightning_fl.samples import ClientBatch


class Saga(Client):
    """Upload grad f_j(w) - v_j + (1/J) sum_i v_i for a drawn mini-batch j, and remember v_j <- grad f_j(w).

    Each client cuts its samples once into J mini-batches, f_j the mean loss of one.  It remembers one gradient for
    each and their mean: clients x (largest J + 1) x d numbers in all, 322 MB for 50 clients of 38 mini-batches and
    LeNet's d = 41,282.

    Args:
        batch_size: Samples of a mini-batch at most, at least 1.  A client's mini-batches differ by one sample at most,
            so that no sample counts much more than another in their mean.
        max_memory_gb: Refuse a larger table, above 0, in 10^9 bytes.
        client_chunk: See `Client`.

    Raises:
        SettingError: If a setting is out of range; on `prepare`, if the table would be too large; on `updates`, for a
            client that was not prepared, such as the virtual ones of a server.

    Note:
        Wu et al. draw single samples; the table of mini-batches is what fits a memory.  They start from the gradients
        at w_0, which costs a pass over all data; here the table starts at zero, so the first upload of each mini-batch
        is its gradient and what the others have reported on average.
    """

    serves_server = False
    table: Tensor
    average: Tensor

    def __init__(
        self,
        batch_size: PositiveInt = 32,
        max_memory_gb: Annotated[float, Gt(0), Le(inf)] = 4.0,
        client_chunk: PositiveInt | None = None,
    ):
        super().__init__(client_chunk)
        self.batch_size = batch_size
        self.max_memory_gb = max_memory_gb

    def prepare(self, model: nn.Module, clients: ClientBatch) -> None:
        """Make the table; see the base class."""
        parameters = flatten(trainable(model).values())
        longest = max(-(-size // self.batch_size) for size in clients.sizes)
        needed = len(clients) * (longest + 1) * parameters.numel() * parameters.element_size() / 1e9
        if needed > self.max_memory_gb:
            raise SettingError(
                f"saga's table of {len(clients)} clients x {longest} mini-batches x {parameters.numel():,} parameters "
                f"needs {needed:.1f} GB, more than max_memory_gb={self.max_memory_gb}; raise it or "
                f"batch_size."
            )
        self.register_buffer("table", parameters.new_zeros(len(clients), longest, parameters.numel()))
        self.register_buffer("average", parameters.new_zeros(len(clients), parameters.numel()))

    def updates(
        self, model: nn.Module, batch: ClientBatch, this_round: Round, out: Tensor | None = None
    ) -> ClientResult:
        """Compute one corrected gradient per client; see the base class."""
        clients = rows_of(batch, self.table, "saga")
        cuts = [self.cut(client, own, this_round.seed) for client, own in zip(batch.ids, batch.indices, strict=True)]
        chosen = [_draw(client, len(cut), this_round) for client, cut in zip(batch.ids, cuts, strict=True)]
        blocks = [own[cut[j]] for own, cut, j in zip(batch.indices, cuts, chosen, strict=True)]
        result = self.gradients(model, ClientBatch(batch.samples, blocks, batch.ids, (this_round, 0)), out)
        drawn = torch.tensor(chosen).to(self.table.device, non_blocking=True)
        counts = torch.tensor([len(cut) for cut in cuts]).to(self.table.device, non_blocking=True)
        correction = result.updates - self.table[clients, drawn]
        self.table[clients, drawn] = result.updates
        torch.add(correction, self.average[clients], out=result.updates)
        self.average[clients] += correction / counts[:, None]
        return result

    def cut(self, client: int, indices: Tensor, seed: int) -> list[Tensor]:
        """Say where, among a client's samples, those of each mini-batch lie: the same in all rounds of a run.

        Args:
            client: The client's number.
            indices: The samples that the client holds.
            seed: The run's.
        """
        shuffle = torch.randperm(len(indices), generator=seeding.generator(seed, "saga", client))
        return list(shuffle.to(indices.device, non_blocking=True).tensor_split(-(-len(indices) // self.batch_size)))


def _draw(client: int, n_blocks: int, this_round: Round) -> int:
    return int(torch.randint(n_blocks, (), generator=this_round.generator("saga", client)))
