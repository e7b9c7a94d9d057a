"""Minimum-diameter averaging (MDA): average the n - f updates that lie closest together.

El Mahdi El Mhamdi, Rachid Guerraoui, Arsany Guirguis, Lê Nguyên Hoang, Sébastien Rouault. Genuinely Distributed
Byzantine Machine Learning. PODC 2020. arXiv:1905.03853.

Trying all subsets ends at some 25 clients.  But n - f rows of diameter at most D exist if and only if f rows cover all
pairs that are further apart than D, and a vertex cover of size f is found in some 1.47^f steps, whatever n is.
"""

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from lightning_fl.aggregator.base import Weighting
from lightning_fl.aggregator.draw_order import draw_order
from lightning_fl.errors import SettingError
from lightning_fl.ranges import NonNegativeInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import finite_rows, still_tolerated
from lightning_fl.updates.products import squared_distances
from lightning_fl.updates.updates import Updates

_MOST_NODES = 1_000_000


def minimum_diameter_weights(
    gram: Float64[Tensor, "n n"], f: int, order: Int64[Tensor, " n"] | None = None
) -> Float64[Tensor, " n"]:
    """Give n - f rows equal weights, from inner products about any origin; see `Mda`.

    Args:
        gram: Inner products.
        f: See `Mda`.
        order: Row numbers in the order in which subsets are compared.  None: as they stand.
    """
    n = len(gram)
    rows = finite_rows(gram.diagonal(), "mda")
    if order is not None:
        rows = order[torch.isin(order, rows)]
    distances = squared_distances(gram[rows][:, rows])
    chosen = rows[_closest(distances, still_tolerated(f, n, len(rows)))]
    return gram.new_zeros(n).index_fill(0, chosen, 1 / len(chosen))


def _closest(distances: Tensor, f: int) -> list[int]:
    """The lexicographically first n - f rows of least diameter."""
    n = len(distances)
    diameters = distances.unique().tolist()
    search = _Search(n, f)
    low, high = 0, len(diameters) - 1  # the largest distance is always enough
    while low < high:
        middle = (low + high) // 2
        if search.coverable(_pairs_beyond(distances, diameters[middle]), (1 << n) - 1, f):
            high = middle
        else:
            low = middle + 1

    far, everybody = _pairs_beyond(distances, diameters[low]), (1 << n) - 1
    chosen: list[int] = []
    inside, outside = 0, 0  # sets of rows, one bit each
    for row in range(n):
        if len(chosen) == n - f:
            break
        if not outside >> row & 1:
            without = outside | far[row]
            free = everybody & ~inside & ~without & ~(1 << row)
            # A row that has no far pair among those left costs nothing.
            if without == outside or search.coverable(far, free, f - without.bit_count()):
                chosen.append(row)
                inside, outside = inside | 1 << row, without
            else:
                outside |= 1 << row
    return chosen


def _pairs_beyond(distances: Tensor, diameter: float) -> list[int]:
    """For each row, the set of those that are further away."""
    bits = np.packbits((distances > diameter).cpu().numpy(), axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in bits]


class _Search:
    """Looks for vertex covers, and counts its steps."""

    def __init__(self, n: int, f: int):
        self.n, self.f = n, f
        self.nodes = 0

    def coverable(self, far: list[int], alive: int, budget: int) -> bool:
        """Whether at most ``budget`` of the living rows have a part in every far pair of living rows."""
        while True:
            self.nodes += 1
            if self.nodes > _MOST_NODES:
                raise SettingError(
                    f"mda needs fewer steps to find the exact subset, got more than {_MOST_NODES:,} for n={self.n} and "
                    f"f={self.f}; lower f or use aggregator=smea."
                )
            if budget < 0:
                return False
            degrees: list[int] = []
            most, busiest, single = 0, -1, -1
            left, paired = alive, 0
            while left:
                bit = left & -left
                left ^= bit
                row = bit.bit_length() - 1
                degree = (far[row] & alive).bit_count()
                if degree:
                    paired |= bit
                    degrees.append(degree)
                if degree == 1:
                    single = row
                if degree > most:
                    most, busiest = degree, row
            if not most:
                return True
            if sum(degrees) > 2 * sum(sorted(degrees, reverse=True)[:budget]):  # no rows have a part in so many pairs
                return False
            alive = paired
            if single >= 0:  # its partner covers what it covers, and more
                alive, budget = alive & ~far[single], budget - 1
                continue
            others = alive & ~(1 << busiest)
            # Everybody has a part in two pairs: these are rings, of which any row is as good as the next.
            if most > 2 and most <= budget and self.coverable(far, others & ~far[busiest], budget - most):
                return True
            alive, budget = others, budget - 1


class Mda(Weighting):
    """Average the n - f updates S with the least diameter, max over i, j in S of ||x_i - x_j||.

    Of subsets with equal diameters each round draws one: the first would favour the clients that come first.

    Args:
        f: Byzantine clients tolerated, 0 <= 2f < n.

    Note:
        The diameter belongs to one pair, so that several subsets often have the same.  An update with NaN or inf is
        left out and counts among the f.  A search of more than 1,000,000 steps (f of 35 or more may need them) is
        refused.

    >>> import torch
    >>> Mda(f=2)(torch.tensor([[0.0], [3.0], [4.0], [5.0], [60.0]]))
    tensor([4.])
    """

    least = "2f + 1"
    exact = True

    def __init__(self, f: NonNegativeInt):
        self.f = f

    def weights(self, updates: Updates, server: ServerOracle) -> Float[Tensor, " n"]:
        """Weigh one round; see the base class."""
        order = draw_order(updates, server.derive_seed("ties"))
        return minimum_diameter_weights(updates.centred.gram, self.f, order)
