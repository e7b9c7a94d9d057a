"""Rejection by loss: keep the n - f updates that look best on the server's samples, average them.

Self-rejection and average-rejection: the baselines SelfRej and AvgRej of Wenxuan Bao, Jun Wu, Jingrui He. BOBA:
Byzantine-Robust Federated Learning with Label Skewness. AISTATS 2024. arXiv:2208.12932.
Zeno: Cong Xie, Oluwasanmi Koyejo, Indranil Gupta. Zeno: Distributed Stochastic Gradient Descent with Suspicion-based
Fault-tolerance. ICML 2019. arXiv:1805.10032.
"""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from lightning_fl.aggregator.base import Weighting
from lightning_fl.aggregator.draw_order import draw_order
from lightning_fl.errors import SettingError
from lightning_fl.ranges import NonNegativeFloat, NonNegativeInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.updates import Updates

Losses = Float[Tensor, " n"] | Callable[[Tensor], Tensor]
# Candidates made at a time: 16 leave-one-out means need little memory on top of the updates.
_CANDIDATES = 16


def self_rejection_weights(
    updates: Float[Tensor, "n d"] | Updates, f: int, losses: Losses, order: Int64[Tensor, " n"] | None = None
) -> Float64[Tensor, " n"]:
    """Give the n - f updates after which the loss is smallest equal weights; see `SelfRejection`.

    Args:
        updates: One update per client.
        f: Byzantine clients tolerated.
        losses: (n,) server's loss after each update alone, or a function that maps (k, d) updates to (k,) losses.  NaN
            counts as inf.
        order: Row numbers; of equally good updates, those stay that come first in it.  None: `draw_order` with seed 0.

    >>> self_rejection_weights(torch.tensor([[1.0], [3.0], [-9.0]]), 1, losses=torch.tensor([0.5, 0.4, 7.0]))
    tensor([0.5000, 0.5000, 0.0000], dtype=torch.float64)
    """
    updates = _round(updates)
    clients = _finite(updates, "self_rejection", order)
    return _equal_weights(_of_each(losses, updates)[clients], clients, updates.n, f)


def average_rejection_weights(
    updates: Float[Tensor, "n d"] | Updates, f: int, losses: Losses, order: Int64[Tensor, " n"] | None = None
) -> Float64[Tensor, " n"]:
    """Give the n - f updates without which the loss is largest equal weights; see `AverageRejection`.

    Args:
        updates: See `self_rejection_weights`.
        f: See `self_rejection_weights`.
        losses: (n,) server's loss without each client, or a function that maps (k, d) updates to (k,) losses; it is
            asked for the m leave-one-out means.  NaN counts as inf.
        order: See `self_rejection_weights`; the means are summed in it, too.

    >>> average_rejection_weights(torch.tensor([[1.0], [3.0], [-9.0]]), 1, losses=torch.tensor([6.0, 7.0, 0.4]))
    tensor([0.5000, 0.5000, 0.0000], dtype=torch.float64)
    """
    updates = _round(updates).whole
    clients = _finite(updates, "average_rejection", order)
    if callable(losses):
        m, blocks = len(clients), clients.to(updates.device, non_blocking=True).split(_CANDIDATES)
        shares = updates.here.new_ones(m, m).fill_diagonal_(0) / max(m - 1, 1)

        # Not mean minus row: beside a row of 1e30 that would leave nothing of the others.
        def outside(rows: Tensor) -> Tensor:
            return shares[: len(blocks), : len(blocks)] @ torch.stack([rows[block].sum(0) for block in blocks])

        def inside(rows: Tensor, block: Tensor) -> Tensor:
            return shares[: len(block), : len(block)] @ rows[block]

        rest = updates.by_column(outside)
        own = (partial(inside, block=block) for block in blocks)
        # Nothing names the candidates: they are gone before the next ones are made.
        values = torch.cat(
            [_ask(losses, updates.by_column(mean).add_(other)) for mean, other in zip(own, rest, strict=True)]
        ).cpu()
    else:
        values = _of_each(losses, updates)[clients]
    return _equal_weights(-values, clients, updates.n, f)


def zeno_weights(
    updates: Float[Tensor, "n d"] | Updates,
    f: int,
    losses: Losses,
    learning_rate: float,
    rho: float,
    order: Int64[Tensor, " n"] | None = None,
) -> Float64[Tensor, " n"]:
    """Give the n - f updates with the smallest sum of loss and price of the step equal weights; see `Zeno`.

    Args:
        updates: See `self_rejection_weights`.
        f: See `self_rejection_weights`.
        losses: See `self_rejection_weights`.
        learning_rate: eta, the server's rate this round.
        rho: Price of a squared step.
        order: See `self_rejection_weights`.

    The third update lowers the loss most, but its step is so long (100 + 0.1 against 0.04 + 0.5 and 0.09 + 0.4):

    >>> clients, losses = torch.tensor([[2.0], [3.0], [100.0]]), torch.tensor([0.5, 0.4, 0.1])
    >>> zeno_weights(clients, 1, losses, learning_rate=0.1, rho=1.0)
    tensor([0.5000, 0.5000, 0.0000], dtype=torch.float64)
    """
    updates = _round(updates)
    clients = _finite(updates, "zeno", order)
    scores = _of_each(losses, updates) + rho * learning_rate**2 * updates.squares
    return _equal_weights(scores[clients], clients, updates.n, f)


def _round(updates: Tensor | Updates) -> Updates:
    return updates if isinstance(updates, Updates) else Updates(updates)


def _finite(updates: Updates, rule: str, order: Tensor | None) -> Int64[Tensor, " m"]:
    """The finite rows in the given order."""
    clients = finite_rows(updates.squares, rule)
    order = draw_order(updates, 0) if order is None else order
    return order[torch.isin(order, clients)]


def _of_each(losses: Losses, updates: Updates) -> Float64[Tensor, " n"]:
    """The losses after each update."""
    return _ask(updates.by_row(losses) if callable(losses) else losses, updates.like).cpu()


def _ask(losses: Losses, candidates: Tensor) -> Float64[Tensor, " k"]:
    values = losses(candidates) if callable(losses) else losses
    if values.shape != (len(candidates),):
        raise SettingError(
            f"losses must be one number for each of {len(candidates)} updates, got {tuple(values.shape)}."
        )
    values = values.to(torch.float64)
    return values.masked_fill(values.isnan(), torch.inf)


def _equal_weights(scores: Tensor, clients: Tensor, n: int, f: int) -> Float64[Tensor, " n"]:
    """Give the n - f clients with the smallest scores equal weights; of equal scores, the first count."""
    kept = clients[scores.argsort(stable=True)[: n - f]]
    return scores.new_zeros(n).index_fill(0, kept, 1 / len(kept))


class _Rejection(Weighting):
    least = "f + 1"
    needs_server = "samples"

    def __init__(self, f: NonNegativeInt):
        self.f = f

    @property
    def robust(self) -> bool:
        """Not by a loss, which does not see how long an update is; see the base class."""
        return False

    def order(self, updates: Updates, server: ServerOracle) -> Int64[Tensor, " n"]:
        """Draw which of equally good updates are preferred this round."""
        return draw_order(updates, server.derive_seed("ties"))


class SelfRejection(_Rejection):
    """Average the n - f updates after which the server's loss L_s(w - eta u_i) is smallest.

    An update with NaN or inf has weight 0 and counts among the f.

    Args:
        f: Byzantine clients tolerated, 0 <= f < n.

    Note:
        A loss does not see length: an update of 1e30 that classifies the server's samples well is kept, and so is one
        that adds the same to all logits where honest updates do worse than guessing.  `Zeno` puts a price on length.
    """

    def weights(self, updates: Updates, server: ServerOracle) -> Float[Tensor, " n"]:
        """Weigh one round; see the base class."""
        return self_rejection_weights(updates, self.f, server.losses_after, self.order(updates, server))


class AverageRejection(_Rejection):
    """Average the n - f updates without which the server's loss is largest.

    The loss without client i is L_s(w - eta/(m-1) sum_{j != i} u_j), over the m finite updates.

    Args:
        f: Byzantine clients tolerated, 0 <= f < n.

    Note:
        Several large updates mask each other: without one of them the loss is as large as with it, and where all
        losses are inf, chance decides which stay.  That is the rule (BOBA, Table 2, MNIST: 9.8 % under Gaussian noise).
    """

    def weights(self, updates: Updates, server: ServerOracle) -> Float[Tensor, " n"]:
        """Weigh one round; see the base class."""
        return average_rejection_weights(updates, self.f, server.losses_after, self.order(updates, server))


class Zeno(_Rejection):
    """Average the n - f updates with the smallest L_s(w_i) + rho ||w_i - w||^2, where w_i = w - eta u_i.

    Args:
        f: Byzantine clients tolerated, 0 <= f < n.
        rho: Price of a squared step, at least 0.

    Note:
        As in the BOBA paper rho weighs the step eta u_i; Xie et al. weigh the gradient, ||u_i||^2.
    """

    def __init__(self, f: NonNegativeInt, rho: NonNegativeFloat = 0.0005):
        super().__init__(f)
        self.rho = rho

    @property
    def robust(self) -> bool:
        """Where length has its price; see the base class."""
        return self.rho > 0

    def weights(self, updates: Updates, server: ServerOracle) -> Float[Tensor, " n"]:
        """Weigh one round; see the base class."""
        eta, order = server.round.learning_rate, self.order(updates, server)
        return zeno_weights(updates, self.f, server.losses_after, eta, self.rho, order)
