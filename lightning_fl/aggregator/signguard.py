"""SignGuard: keep updates of usual length whose signs are like those of most others.

Jian Xu, Shao-Lun Huang, Linqi Song, Tian Lan. Byzantine-robust Federated Learning through Collaborative Malicious
Gradient Filtering. ICDCS 2022. arXiv:2109.05872.
"""

from math import inf

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator, equal_shares
from lightning_fl.aggregator.mixing import clipping_scales
from lightning_fl.errors import SettingError
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.rows import finite_rows
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


def middle(norms: Float64[Tensor, " n"]) -> Float64[Tensor, ""]:
    """Return the median, the mean of the middle two where n is even."""
    ordered, n = norms.sort().values, len(norms)
    return ordered[(n - 1) // 2] / 2 + ordered[n // 2] / 2


def signguard_weights(
    norms: Float64[Tensor, " n"], statistics: Float64[Tensor, "n 3"], lower: float = 0.1, upper: float = 3.0
) -> Float64[Tensor, " n"]:
    """Weigh finite rows by their norms and sign statistics; see `signguard`."""
    _check(lower, upper)
    centre = middle(norms)
    usual = (lower * centre < norms) & (norms < upper * centre)
    chosen = usual & largest_cluster(statistics)
    if not chosen.any():
        chosen = usual if usual.any() else torch.ones_like(usual)
    return chosen * clipping_scales(norms, centre) / chosen.sum()


def _check(lower: float, upper: float) -> None:
    if not 0 <= lower < 1 < upper < inf:
        raise SettingError(f"signguard needs 0 <= lower < 1 < upper, both finite, got {lower} and {upper}.")


def signguard(
    updates: Float[Tensor, "n d"],
    columns: Int64[Tensor, " k"],
    lower: float = 0.1,
    upper: float = 3.0,
    scaled: bool = False,
) -> Float[Tensor, " d"]:
    """Average what passes a filter of norms and a filter of signs, clipped to the median norm (Algorithm 2).

    With M the median norm, S1 holds the updates with lower M < ||x_i|| < upper M, and S2 the largest cluster, by mean
    shift, of the shares of positive, zero and negative entries in some coordinates.  The result is the mean over S1 and
    S2 of x_i min(1, M / ||x_i||).

    Args:
        updates: One update per row.
        columns: The coordinates whose signs count, at least one (the paper draws 10 % of them).
        lower: L, 0 <= L < 1.
        upper: R > 1.
        scaled: Divide each of the three shares by its largest value over the updates before clustering, as the authors'
            code does; their text does not.

    Returns:
        The aggregated update.

    Raises:
        SettingError: If updates are not a floating-point matrix, no update is finite, there is no column, or a setting
            is out of range.

    Note:
        Where no update is in both, which the paper leaves open, those in S1 are averaged, and if S1 is empty, all
        finite ones.  The median of an even number of norms is the mean of the middle two.  An update with NaN or inf is
        left out of everything.  The rule tolerates less than half of the clients, and takes label skew for an attack as
        far as it moves the shares of signs.

    The third update has other signs, the fourth is too long, and the second is clipped to the median norm 10:

    >>> clients = torch.tensor([[6.0, 8.0], [9.0, 12.0], [-6.0, -8.0], [60.0, 80.0], [3.0, 4.0]])
    >>> signguard(clients, torch.tensor([0, 1]))
    tensor([5.0000, 6.6667])
    """
    rows = Updates(updates)
    return rows.combine(_weights(rows, columns, lower, upper, scaled))


def _weights(updates: Updates, columns: Tensor, lower: float, upper: float, scaled: bool) -> Float64[Tensor, " n"]:
    if not len(columns):
        raise SettingError("signguard needs the signs of at least one coordinate, got no columns; draw some.")
    norms = updates.squares.sqrt()
    rows = finite_rows(norms, "signguard")
    statistics = sign_statistics(updates.columns(columns).rows[rows], scaled)
    weights = signguard_weights(norms[rows], statistics, lower, upper)
    return torch.zeros_like(norms).index_put((rows,), weights)


class Signguard(Aggregator):
    """Average what has a usual length and usual signs; see `signguard` for lower, upper and scaled.

    Its weights undo lengths beyond the median; its trust is an equal share for those that pass.

    Args:
        lower: L, 0 <= L < 1.
        upper: R > 1.
        share: How much of the coordinates, a block of neighbours drawn each round, 0 < share <= 1; all where the block
            would be empty.
        scaled: Divide each share of signs by its largest value.

    Raises:
        SettingError: If lower, upper or share is out of range.
    """

    moves_with = ("scale",)

    def __init__(self, lower: float = 0.1, upper: float = 3.0, share: float = 0.1, scaled: bool = False):
        _check(lower, upper)
        if not 0 < share <= 1:
            raise SettingError(f"signguard needs 0 < share <= 1, got {share}; the paper takes 0.1.")
        self.lower = lower
        self.upper = upper
        self.share = share
        self.scaled = scaled

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        size = int(self.share * updates.d) or updates.d
        start = int(torch.randint(updates.d - size + 1, (1,), generator=server.generator("signguard")))
        columns = torch.arange(start, start + size, device=updates.device)
        weights = _weights(updates, columns, self.lower, self.upper, self.scaled)
        return Aggregation(updates.combination(weights), weights, trust=equal_shares(weights))
