"""Meamed: in every coordinate, the mean of the values nearest to the median.

Cong Xie, Oluwasanmi Koyejo, Indranil Gupta. Generalized Byzantine-tolerant SGD. 2018. arXiv:1802.10116.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator, check_minority
from lightning_fl.aggregator.median import finite_only, reduce_columns
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates import Updates


def middle_mean(values: Any, f: int) -> Any:
    """Average every row without its f first and its f last values, in float64.

    Args:
        values: (m, n) array or tensor.
        f: 0 <= 2f < n.  The most that leave a value give the median, the mean of the middle two where n is even.

    Returns:
        (m,) means.
    """
    return values[:, f : values.shape[1] - f].mean(1, dtype=float)


def nearest_mean(values: Any, centre: Any, k: int) -> Any:
    """Average the k values of every row that are nearest to its centre.

    They are neighbours: from the k smallest on, take a step up for as long as the value gained is nearer than the one
    lost.

    Args:
        values: (m, n) array or tensor, every row ascending; the values left out are overwritten by 0.
        centre: (m,) float64 numbers.
        k: 1 <= k <= n.

    Returns:
        (m,) means; of two values equally near, the smaller one counts.
    """
    spare, centre = values.shape[1] - k, centre[:, None]
    lost, gained = values[:, :spare], values[:, k:]
    steps = gained - centre < centre - lost  # true up to the last step
    lost *= ~steps
    gained *= steps
    return values.sum(1) / k


def mean_around_median(updates: Float[Tensor, "n d"], f: int) -> Float[Tensor, " d"]:
    """Average, in every coordinate, the n - f values nearest to the median (the paper's Meamed).

    Args:
        updates: One update per row.
        f: Byzantine clients tolerated, 0 <= 2f < n (the paper's q).

    Returns:
        Per coordinate, the mean of those values.

    Raises:
        SettingError: If updates are not a floating-point matrix, no update is finite, or f does not fit n.

    Note:
        The median of an even number of values is the mean of the middle two, and of two values equally near the smaller
        one counts; the paper leaves both open.  An update with NaN or inf is left out and counts among the f.

    The median is 4, and 2, 4, 7 are the three values nearest to it:

    >>> import torch
    >>> mean_around_median(torch.tensor([[0.0], [2.0], [4.0], [7.0], [90.0]]), f=2)
    tensor([4.3333])
    """
    rows = finite_only(updates, "meamed")
    check_minority(len(updates), f, "meamed")
    n = len(rows)
    k = n - max(f - (len(updates) - n), 0)
    return reduce_columns(rows, lambda values: nearest_mean(values, middle_mean(values, (n - 1) // 2), k))


class Meamed(Aggregator):
    """Average the values nearest to the median of every coordinate; see `mean_around_median` for the setting."""

    def __init__(self, f: int):
        self.f = f

    def check(self, n: int, n_classes: int) -> None:
        """Check f; see the base class."""
        check_minority(n, self.f, "meamed")

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        return Aggregation(mean_around_median(updates.rows, self.f))
