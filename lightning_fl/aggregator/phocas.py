"""Phocas: in every coordinate, the mean of the values nearest to the trimmed mean.

Cong Xie, Oluwasanmi Koyejo, Indranil Gupta. Phocas: Dimensional Byzantine-resilient Stochastic Gradient Descent. 2018.
arXiv:1805.09682.
"""

from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.ranges import NonNegativeInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import still_tolerated
from lightning_fl.updates.ordered import ordered
from lightning_fl.updates.updates import Updates


class Phocas(Aggregator):
    """Average, in every coordinate, the n - f values nearest to the f-trimmed mean.

    Args:
        f: Byzantine clients tolerated, 0 <= 2f < n (the paper's b); as many values are trimmed at either end.

    Note:
        Of two values equally near, the smaller one counts; the paper leaves it open.  An update with NaN or inf is left
        out and counts among the f.

    The trimmed mean is 14 / 3, and 2, 3, 4, 7 and 9 are the five values nearest to it:

    >>> import torch
    >>> Phocas(f=2)(torch.tensor([[2.0], [4.0], [7.0], [9.0], [90.0], [-40.0], [3.0]]))
    tensor([5.])
    """

    least = "2f + 1"
    exact = True
    moves_with = ("shift", "scale")

    def __init__(self, f: NonNegativeInt):
        self.f = f

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        values = ordered(updates, "phocas")
        f = still_tolerated(self.f, updates.n, values.n)
        return Aggregation(values.nearest(trim=f, k=values.n - f))
