"""SignGuard: keep updates of usual length whose signs are like those of most others.

Jian Xu, Shao-Lun Huang, Linqi Song, Tian Lan. Byzantine-robust Federated Learning through Collaborative Malicious
Gradient Filtering. ICDCS 2022. arXiv:2109.05872.
"""

from typing import Annotated

import torch
from annotated_types import Ge, Gt, Le, Lt
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.aggregator.medians import middle
from lightning_fl.aggregator.mixing import clipping_scales
from lightning_fl.aggregator.trust import equal_shares
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.shares import floored
from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.updates import Updates

_MOST_STEPS = 300
# Distances between sign statistics, which lie in [0, 1], that rounding alone can make.
_SAME = 1e-9


def sign_statistics(rows: Float[Tensor, "n k"], scaled: bool = False) -> Float64[Tensor, "n 3"]:
    """Compute the share of positive, of zero and of negative entries of every row.

    Args:
        rows: Finite rows.
        scaled: Divide each of the three by its largest value over the rows.

    >>> sign_statistics(torch.tensor([[1.0, 2.0, 0.0, -1.0]]))
    tensor([[0.5000, 0.2500, 0.2500]], dtype=torch.float64)
    """
    positive, negative = (rows > 0).sum(1), (rows < 0).sum(1)
    shares = torch.stack([positive, rows.shape[1] - positive - negative, negative], dim=1).double() / rows.shape[1]
    return shares / shares.max(0).values.clamp(min=1 / rows.shape[1]) if scaled else shares


def largest_cluster(points: Float64[Tensor, "n k"]) -> Bool[Tensor, " n"]:
    """Find the largest cluster by mean shift with a flat kernel.

    The bandwidth h is the mean over points of the distance to the floor(n/2)-th nearest, itself counted.  From every
    point climb to the mean of the points within h, until it stays.  Of the modes reached, drop those within h of one
    with more points within h.  A point belongs to the nearest mode, or to none if that is farther than h.

    Args:
        points: Finite points of a few dimensions.

    Returns:
        Which points belong to it; of clusters of equal size, to that of the mode with more points, then the first.
    """
    n = len(points)
    distances = _distances(points, points)
    width = distances.sort(dim=1).values[:, max(n // 2, 1) - 1].mean() + _SAME
    modes, inside = points, distances <= width
    for _ in range(_MOST_STEPS):
        modes = inside.double() @ points / inside.sum(1, keepdim=True)
        before, inside = inside, _distances(modes, points) <= width
        if torch.equal(inside, before):
            break
    order = inside.sum(1).argsort(descending=True, stable=True)
    near = _distances(modes, modes) <= width
    left, kept = torch.ones_like(order, dtype=torch.bool), []
    for mode in order.tolist():
        if left[mode]:
            kept.append(mode)
            left &= ~near[mode]
    gap, label = _distances(points, modes[kept]).min(1)
    label = label.masked_fill(gap > width, len(kept))
    return label == label.bincount(minlength=len(kept) + 1)[:-1].argmax()


def _distances(a: Tensor, b: Tensor) -> Tensor:
    return (a[:, None] - b).square().sum(2).sqrt()


def signguard_weights(
    updates: Updates, columns: Int64[Tensor, " k"], lower: float = 0.1, upper: float = 3.0, scaled: bool = False
) -> Float64[Tensor, " n"]:
    """Weigh the rows by their norms and the signs in some coordinates, at least one; see `Signguard`."""
    lengths = updates.squares.sqrt()
    rows = finite_rows(lengths, "signguard")
    there = rows.to(updates.device, non_blocking=True)
    norms, statistics = lengths[rows], sign_statistics(updates.columns(columns).rows[there], scaled).cpu()
    centre = middle(norms)
    usual = (lower * centre < norms) & (norms < upper * centre)
    chosen = usual & largest_cluster(statistics)
    if not chosen.any():
        chosen = usual if usual.any() else torch.ones_like(usual)
    weights = chosen * clipping_scales(norms, centre) / chosen.sum()
    return torch.zeros_like(lengths).index_put((rows,), weights)


class Signguard(Aggregator):
    """Average what passes a filter of norms and a filter of signs, clipped to the median norm (Algorithm 2).

    With M the median norm, S1 holds the updates with lower M < ||x_i|| < upper M, and S2 the largest cluster, by mean
    shift, of the shares of positive, zero and negative entries in some coordinates.  The result is the mean over S1 and
    S2 of x_i min(1, M / ||x_i||).

    Its weights undo lengths beyond the median; its trust is an equal share for those that pass.

    Args:
        lower: L, 0 <= L < 1.
        upper: R > 1.
        share: How much of the coordinates, a block of neighbours drawn each round, 0 < share <= 1 (the paper takes
            0.1); all where the block would be empty.
        scaled: Divide each of the three shares by its largest value over the updates before clustering, as the authors'
            code does; their text does not.

    Note:
        Where no update is in both, which the paper leaves open, those in S1 are averaged, and if S1 is empty, all
        finite ones.  The median of an even number of norms is the mean of the middle two.  Where features are equal in
        large groups the bandwidth may be 0: the largest group is the cluster, the first of equal ones.  An update with
        NaN or inf is left out of everything.  The rule tolerates less than half of the clients, and takes label skew
        for an attack as far as it moves the shares of signs.

    The third update has other signs, the fourth is too long, and the second is clipped to the median norm 10:

    >>> import torch
    >>> clients = torch.tensor([[6.0, 8.0], [9.0, 12.0], [-6.0, -8.0], [60.0, 80.0], [3.0, 4.0]])
    >>> Signguard(share=1.0)(clients)
    tensor([5.0000, 6.6667])
    """

    moves_with = ("scale",)

    def __init__(
        self,
        lower: Annotated[float, Ge(0), Lt(1)] = 0.1,
        upper: Annotated[float, Gt(1)] = 3.0,
        share: Annotated[float, Gt(0), Le(1)] = 0.1,
        scaled: bool = False,
    ):
        self.lower = lower
        self.upper = upper
        self.share = share
        self.scaled = scaled

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        size = floored(self.share, updates.d) or updates.d
        start = int(torch.randint(updates.d - size + 1, (1,), generator=server.generator("signguard")))
        columns = torch.arange(start, start + size, device=updates.device)
        weights = signguard_weights(updates, columns, self.lower, self.upper, self.scaled)
        return Aggregation(updates.combination(weights), weights, trust=equal_shares(weights))
