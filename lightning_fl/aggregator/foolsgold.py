"""FoolsGold: trust clients less, the more similar their updates have been over all rounds.

Clement Fung, Chris J. M. Yoon, Ivan Beschastnikh. The Limitations of Federated Learning in Sybil Settings. RAID 2020.
arXiv:1808.04866.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.aggregator.clusters import cosine_distances
from lightning_fl.aggregator.remembering import clients_of
from lightning_fl.ranges import PositiveFloat
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.products import gram_matrix
from lightning_fl.updates.updates import Updates

# Columns whose histories are added up at a time.
_COLUMNS = 2**12


def foolsgold_weights(gram: Float64[Tensor, "n n"], confidence: float = 1.0) -> Float64[Tensor, " n"]:
    """Weigh the clients from the inner products of their histories; see `Foolsgold`."""
    rows = finite_rows(gram.diagonal(), "foolsgold")
    alike = (1 - cosine_distances(gram[rows][:, rows])).fill_diagonal_(0)
    most = alike.max(1).values  # v_i
    pardon = torch.where(most > most[:, None], most[:, None] / most, 1)
    alpha = (1 - (alike * pardon).max(1).values).clamp(0, 1)
    weights = gram.new_zeros(len(gram))
    if alpha.any():
        alpha = (alpha / alpha.max()).clamp(max=0.99)
        weights[rows] = (confidence * (alpha.logit() + 0.5)).clamp(0, 1)  # logit(0) = -inf gives 0
    return weights


def _weights(updates: Updates, gram: Tensor, confidence: float, normalize: bool) -> Float64[Tensor, " n"]:
    """Weigh one round by the histories' inner products; a client with anything not finite is left out."""
    broken = ~updates.norms().isfinite()
    gram = gram.masked_fill(broken | broken[:, None], torch.nan)
    weights = foolsgold_weights(gram, confidence)
    return weights / (weights.sum() or 1) if normalize else weights


def _gram(rows: Tensor, past: Sequence[Tensor | None]) -> Tensor:
    """Inner products between the rows plus what is known of their past, some columns at a time."""
    gram = rows.new_zeros(len(rows), len(rows), dtype=torch.float64)
    for start in range(0, rows.shape[1], _COLUMNS):
        columns = slice(start, start + _COLUMNS)
        history = rows[:, columns].clone()
        for row, before in zip(history, past, strict=True):
            if before is not None:
                row += before[columns].to(row)
        gram += gram_matrix(history)
    return gram


class Foolsgold(Aggregator):
    """Add up the updates by how unlike their clients' histories are, sum_i w_i x_i (Algorithm 1).

    H_i is the sum of client i's updates over all rounds, this one included; cs_ij is the cosine of H_i and H_j, cs_ii =
    0, and v_i = max_j cs_ij.  Pardoning multiplies cs_ij by v_i / v_j where v_j > v_i.  Then alpha_i = 1 - max_j cs_ij,
    clipped to [0, 1] and divided by its maximum (at most 0.99), and w_i = kappa (ln(alpha_i / (1 - alpha_i)) + 0.5),
    clipped to [0, 1].  The result is zero if all clients are alike.

    It remembers the histories, d numbers per client.  A client that is absent, or whose update is not finite, keeps its
    own.

    Args:
        confidence: kappa, > 0 (the paper's: 1).
        normalize: Divide by sum_i w_i, which the paper does not: its step grows with the number of clients.

    Note:
        All coordinates count, not only those of the output layer; the authors' code also adds 1e-5 to v and inside the
        logarithm, and lowers the largest alpha alone to 0.99: those between 0.99 and 1 stay, which tells only below a
        confidence of 0.2.  A zero history has cosine 0 with every other.  An update with NaN or inf has weight 0.
        There is no f: the rule assumes that honest clients differ more than Sybils do, and a single attacker passes.

    Of three clients the first two are alike up to the sign of their second entry, with cosine 0.6; alpha = 0.4, 0.4, 1:

    >>> Foolsgold()(torch.tensor([[2.0, 1.0, 0.0], [2.0, -1.0, 0.0], [0.0, 0.0, 3.0]]))
    tensor([0.3781, 0.0000, 3.0000])
    """

    needs_ids = True
    robust = False  # a single attacker is no Sybil
    moves_with = ("scale", "rotation")

    def __init__(self, confidence: PositiveFloat = 1.0, normalize: bool = False):
        self.confidence = confidence
        self.normalize = normalize
        self._history: dict[int, Tensor] = {}
        self._last: dict[int, Tensor] = {}

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class.

        Raises:
            SettingError: If the updates do not say whose they are.
        """
        clients = clients_of(updates, "foolsgold")
        past = [self._history.get(client) for client in clients]
        gram = updates.gram if all(row is None for row in past) else _gram(updates.rows, past).cpu()
        weights = _weights(updates, gram, self.confidence, self.normalize)
        finite = gram.diagonal().isfinite().tolist()
        self._last = {i: row for i, row, fine in zip(clients, updates.rows, finite, strict=True) if fine}
        return Aggregation(updates.combination(weights), weights)

    def on_train_batch_end(self, *args: Any) -> None:
        """Add the updates of this round's last call to the histories."""
        self._history = self._history | {
            client: row + self._history[client].to(row) if client in self._history else row.clone()
            for client, row in self._last.items()
        }
        self._last = {}

    def state_dict(self) -> dict[str, Any]:
        """Return the sum of each client's updates over the rounds that are over."""
        return {"history": self._history}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._history, self._last = state_dict["history"], {}
