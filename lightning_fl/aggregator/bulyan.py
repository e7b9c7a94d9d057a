"""Bulyan: let Krum select updates one after the other, then average in every coordinate what is near their median.

El Mahdi El Mhamdi, Rachid Guerraoui, Sébastien Rouault. The Hidden Vulnerability of Distributed Learning in Byzantium.
ICML 2018. arXiv:1802.07927.
"""

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.ranges import NonNegativeInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import finite_rows, still_tolerated
from lightning_fl.updates.ordered import Ordered
from lightning_fl.updates.updates import Updates


def bulyan_selection(distances: Float64[Tensor, "n n"], f: int, once: bool = False) -> Int64[Tensor, " theta"]:
    """Select theta = n - 2f rows by Krum; see `Bulyan`.

    Args:
        distances: Finite ||x_i - x_j||^2.
        f: 0 <= 2f < n.
        once: Whether all at once.

    Returns:
        Their numbers in the order of selection.
    """
    n = len(distances)
    ordered, order = distances.clone().fill_diagonal_(torch.inf).sort(dim=1, stable=True)
    others, near, left = ordered[:, :-1].cpu().numpy(), order[:, :-1].cpu().numpy(), np.arange(n)
    selected: list[int] = []
    for r in range(n, 2 * f, -1):
        scores = others[:, : max(r - f - 2, 1)].sum(1)
        if once:
            selected = scores.argsort(kind="stable")[: n - 2 * f].tolist()
            break
        selected.append(int(left[scores.argmin()]))
        stays = left != selected[-1]
        left, others, near = left[stays], others[stays], near[stays]
        there, shape = near != selected[-1], (r - 1, max(r - 2, 0))
        others, near = others[there].reshape(shape), near[there].reshape(shape)
    return torch.tensor(selected, device=distances.device)


class Bulyan(Aggregator):
    """Aggregate by Bulyan over Krum (sec. 4).

    Move theta = n - 2f times the choice of Krum among the rows left to the selection S; then average, in every
    coordinate, the beta = theta - 2f values of S nearest to the median of S.  Its trust is an equal share for those
    selected.

    Args:
        f: Byzantine clients tolerated, 0 <= 4f <= n - 3.
        once: Select the theta rows of least score at once, as the authors of GAS do.

    Note:
        With r rows left Krum counts the r - f - 2 nearest others, and at least 1: the last choices have fewer rows than
        Krum's own 2f + 3, and the paper leaves them open.  The median of an even number of values is the mean of the
        middle two; of two values equally near the smaller one counts, of equal scores the first.  An update with NaN or
        inf is never selected and counts among the f.

    Krum selects 2, then 1, 4, 0 and 3; of these 1, 2 and 3 are nearest to the median 2:

    >>> Bulyan(f=1)(torch.tensor([[0.0], [1.0], [2.0], [3.0], [4.0], [6.0], [90.0]]))
    tensor([2.])
    """

    least = "4f + 3"
    order_matters = True  # with one neighbour counted, the nearest two have the same score
    moves_with = ("shift", "scale")

    def __init__(self, f: NonNegativeInt, once: bool = False):
        self.f = f
        self.once = once

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        rows = finite_rows(updates.centred.gram.diagonal(), "bulyan")
        f = still_tolerated(self.f, updates.n, len(rows))
        selected = rows[bulyan_selection(updates.distances[rows][:, rows], f, self.once)]
        theta = len(selected)
        trim, k = (theta - 1) // 2, theta - 2 * f
        trust = updates.data_weights.new_zeros(updates.n)
        trust[selected] = 1 / theta
        there = selected.to(updates.device, non_blocking=True)
        return Aggregation(updates.by_column(lambda rows: Ordered(rows[there]).nearest(trim, k)), trust=trust)
