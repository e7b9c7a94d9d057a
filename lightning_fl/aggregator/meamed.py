"""Meamed: in every coordinate, the mean of the values nearest to the median.

Cong Xie, Oluwasanmi Koyejo, Indranil Gupta. Generalized Byzantine-tolerant SGD. 2018. arXiv:1802.10116.
"""

from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.ranges import NonNegativeInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import still_tolerated
from lightning_fl.updates.ordered import ordered
from lightning_fl.updates.updates import Updates


class Meamed(Aggregator):
    """Average, in every coordinate, the n - f values nearest to the median (the paper's Meamed).

    Args:
        f: Byzantine clients tolerated, 0 <= 2f < n (the paper's q).

    Note:
        The median of an even number of values is the mean of the middle two, and of two values equally near the smaller
        one counts; the paper leaves both open.  An update with NaN or inf is left out and counts among the f.

    The median is 4, and 2, 4, 7 are the three values nearest to it:

    >>> import torch
    >>> Meamed(f=2)(torch.tensor([[0.0], [2.0], [4.0], [7.0], [90.0]]))
    tensor([4.3333])
    """

    least = "2f + 1"
    exact = True
    moves_with = ("shift", "scale")

    def __init__(self, f: NonNegativeInt):
        self.f = f

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        values = ordered(updates, "meamed")
        kept = values.n - still_tolerated(self.f, updates.n, values.n)
        return Aggregation(values.nearest(trim=(values.n - 1) // 2, k=kept))
