"""Meamed: in every coordinate, the mean of the values nearest to the median.

Cong Xie, Oluwasanmi Koyejo, Indranil Gupta. Generalized Byzantine-tolerant SGD. 2018. arXiv:1802.10116.
"""

from jaxtyping import Float
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator, check_minority
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.rows import still_tolerated
from lightning_fl.updates.updates import Updates


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
    return _mean_around_median(Updates(updates), f)


def _mean_around_median(updates: Updates, f: int) -> Float[Tensor, " d"]:
    values = updates.ordered("meamed")
    check_minority(updates.n, f, "meamed")
    return values.nearest(trim=(values.n - 1) // 2, k=values.n - still_tolerated(f, updates.n, values.n))


class Meamed(Aggregator):
    """Average the values nearest to the median of every coordinate; see `mean_around_median` for the setting."""

    least = "2f + 1"
    exact = True
    moves_with = ("shift", "scale")

    def __init__(self, f: int):
        self.f = f

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        return Aggregation(_mean_around_median(updates, self.f))
