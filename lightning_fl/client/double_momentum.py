"""The clients of mu^2-SGD: a momentum whose past gradients are moved to where the model is now.

Tehila Dahan, Kfir Y. Levy. Fault Tolerant ML: Efficient Meta-Aggregation and Synchronous Training. ICML 2024.
arXiv:2405.14759.
"""

from copy import copy

from torch import Tensor, nn
from typing_extensions import override

from lightning_fl.client.base import Client, ClientResult, minibatches, rows_of
from lightning_fl.client.gradient import Gradient
from lightning_fl.network.parameters import flatten, trainable
from lightning_fl.round import Round
from lightning_fl.samples import ClientBatch


class DoubleMomentum(Gradient):
    """Upload d_i <- g_i(x) + (1 - beta_t) (d_i - g_i(x')), beta_t = 1/t, in place of the gradient g_i(x).

    x is the model, x' what it was in the client's round before, and both gradients are of the same mini-batch.  In a
    client's first round d_i = g_i(x).  The server of mu^2-SGD is `Anytime`.

    Clients remember 2 n d numbers and compute two gradients a round.  A virtual client of the server uploads g.

    Args:
        batch_size: See `Gradient`.
        client_chunk: See `Client`.
        sampling: How mini-batches are drawn; see `minibatches`.

    Note:
        Who takes part in some rounds only counts t by its own, and x' is the last model that it has seen; the paper has
        all clients in all rounds.  The authors' program rounds beta_t to three digits, and keeps it at 0.01 at least.
    """

    moves_statistics = False
    d: Tensor
    before: Tensor
    t: Tensor
    remembers = True

    @override
    def prepare(self, model: nn.Module, clients: ClientBatch) -> None:
        super().prepare(model, clients)
        start, n = flatten(trainable(model).values()), max(clients.ids) + 1
        self.register_buffer("d", start.new_zeros(n, len(start)))
        self.register_buffer("before", start.repeat(n, 1))
        self.register_buffer("t", start.new_zeros(n, 1))

    @override
    def updates(
        self, model: nn.Module, batch: ClientBatch, this_round: Round, out: Tensor | None = None
    ) -> ClientResult:
        result = super().updates(model, batch, this_round, out)
        if not self.remembers or all(client < 0 for client in batch.ids):  # virtual ones of the server
            return result
        rows = rows_of(batch, self.d, "double_momentum")
        (drawn,) = minibatches(batch, self.batch_size, this_round, sampling=self.sampling)
        earlier = self.gradients(model, drawn, at=self.before[rows])
        self.t[rows] += 1
        self.before[rows] = flatten(trainable(model).values())
        kept = 1 - 1 / self.t[rows]
        self.d[rows] = result.updates[:] = result.updates + kept * (self.d[rows] - earlier.updates)
        return ClientResult(result.updates, result.losses, result.sample_gradients + earlier.sample_gradients)

    @override
    def without_momentum(self) -> Client:
        other = copy(self)
        other.remembers = False
        return other
