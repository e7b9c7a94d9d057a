"""AKSEL: average the updates nearest to their coordinate-wise median.

Amine Boussetta, El Mahdi El Mhamdi, Rachid Guerraoui, Alexandre Maurer, Sébastien Rouault. AKSEL: Fast Byzantine SGD.
OPODIS 2020.
"""

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from lightning_fl.aggregator.base import Weighting
from lightning_fl.aggregator.median import Median
from lightning_fl.ranges import NonNegativeInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.updates import Updates

# Columns converted to float64 at a time.
_COLUMNS = 2**12


def aksel_weights(distances: Float64[Tensor, " n"], f: int) -> Float64[Tensor, " n"]:
    """Give the n - f rows nearest to the pivot equal weights; see `Aksel`.

    Args:
        distances: From each row to the pivot, squared or not; NaN or inf where a row is not finite.
        f: Byzantine clients tolerated.
    """
    n = len(distances)
    rows = finite_rows(distances, "aksel")
    keep = min(n - f, len(rows))
    nearest = rows[distances[rows].argsort(stable=True)[:keep]]
    return distances.new_zeros(n).index_fill(0, nearest, 1 / keep)


def _to_the_median(rows: Tensor) -> Float64[Tensor, " n"]:
    """Squared distances to the coordinate-wise median, by subtraction."""
    pivot = Median("mean")(rows)
    blocks = zip(rows.split(_COLUMNS, dim=1), pivot.split(_COLUMNS), strict=True)
    return torch.stack([(block.double() - centre.double()).square().sum(1) for block, centre in blocks]).sum(0)


class Aksel(Weighting):
    """Average the n - f updates nearest to the coordinate-wise median, in Euclidean distance.

    Args:
        f: Byzantine clients tolerated, 0 <= 2f < n.

    Note:
        The median of an even number is the mean of the middle two.  Of equally near updates the first count.  An update
        with NaN or inf is left out and counts among the f.

    The median is (2, 1), the squared distances are 4, 1, 5, 65 and 0:

    >>> Aksel(f=2)(torch.tensor([[2.0, -1.0], [1.0, 1.0], [3.0, 3.0], [10.0, 0.0], [2.0, 1.0]]))
    tensor([1.6667, 0.3333])
    """

    least = "2f + 1"
    exact = True

    def __init__(self, f: NonNegativeInt):
        self.f = f

    def weights(self, updates: Updates, server: ServerOracle) -> Float[Tensor, " n"]:
        """Weigh one round; see the base class."""
        return aksel_weights(updates.by_block(_to_the_median, mark_broken=True).sum(0).cpu(), self.f)
