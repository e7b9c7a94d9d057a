"""Phocas: in every coordinate, the mean of the values nearest to the trimmed mean.

Cong Xie, Oluwasanmi Koyejo, Indranil Gupta. Phocas: Dimensional Byzantine-resilient Stochastic Gradient Descent. 2018.
arXiv:1805.09682.
"""

from jaxtyping import Float
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator, check_minority
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.rows import still_tolerated
from lightning_fl.updates.updates import Updates


def phocas(updates: Float[Tensor, "n d"], f: int) -> Float[Tensor, " d"]:
    """Average, in every coordinate, the n - f values nearest to the f-trimmed mean.

    Args:
        updates: One update per row.
        f: Byzantine clients tolerated, 0 <= 2f < n (the paper's b); as many values are trimmed at either end.

    Returns:
        Per coordinate, the mean of those values.

    Raises:
        SettingError: If updates are not a floating-point matrix, no update is finite, or f does not fit n.

    Note:
        Of two values equally near, the smaller one counts; the paper leaves it open.  An update with NaN or inf is left
        out and counts among the f.

    The trimmed mean is 14 / 3, and 2, 3, 4, 7 and 9 are the five values nearest to it:

    >>> import torch
    >>> phocas(torch.tensor([[2.0], [4.0], [7.0], [9.0], [90.0], [-40.0], [3.0]]), f=2)
    tensor([5.])
    """
    return _phocas(Updates(updates), f)


def _phocas(updates: Updates, f: int) -> Float[Tensor, " d"]:
    values = updates.ordered("phocas")
    check_minority(updates.n, f, "phocas")
    f = still_tolerated(f, updates.n, values.n)
    return values.nearest(trim=f, k=values.n - f)


class Phocas(Aggregator):
    """Average the values nearest to the trimmed mean of every coordinate; see `phocas` for the setting."""

    least = "2f + 1"
    exact = True
    moves_with = ("shift", "scale")

    def __init__(self, f: int):
        self.f = f

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        return Aggregation(_phocas(updates, self.f))
