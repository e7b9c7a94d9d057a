"""Krum and Multi-Krum: trust the updates that have the nearest neighbours.

Peva Blanchard, El Mahdi El Mhamdi, Rachid Guerraoui, Julien Stainer. Machine Learning with Adversaries: Byzantine
Tolerant Gradient Descent. NeurIPS 2017. arXiv:1703.02757.
"""

from collections.abc import Callable
from typing import Literal

from jaxtyping import Float, Float64
from torch import Tensor

from lightning_fl.aggregator.base import Weighting
from lightning_fl.aggregator.krum_groups import FromKrum
from lightning_fl.errors import SettingError
from lightning_fl.ranges import NonNegativeInt, PositiveInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.theory.robustness import krum_kappa
from lightning_fl.updates.finite import among, finite_rows, still_tolerated
from lightning_fl.updates.ordered import sorted_rows
from lightning_fl.updates.products import by_parts, squared_distances
from lightning_fl.updates.updates import Updates

Neighbours = Literal["n-f-2", "n-f-1"]
_FEWEST = {"n-f-2": 3, "n-f-1": 2}  # n - f from which a neighbour counts
_PROVEN = {"n-f-2": 3, "n-f-1": 1}  # n - 2f from which the guarantee holds


def krum_weights(
    gram: Float64[Tensor, "n n"], f: int, m: int | None = 1, neighbours: Neighbours = "n-f-2", rule: str = "krum"
) -> Float64[Tensor, " n"]:
    """Give the m rows of least score weight 1/m each, from inner products; see `MultiKrum`."""
    n = len(gram)
    rows = finite_rows(gram.diagonal(), rule)
    keep = len(rows) - still_tolerated(f, n, len(rows))
    m = keep if m is None else min(m, len(rows))
    distances = squared_distances(among(gram, rows))
    others = keep - 2 if neighbours == "n-f-2" else keep - 1
    nearest = 1 + others  # itself at 0
    scores = by_parts(lambda some: sorted_rows(distances[some])[:, :nearest].sum(1), distances.new_empty(len(rows)))
    weights = gram.new_zeros(n)
    weights[rows[scores.argsort(stable=True)[:m]]] = 1 / m
    return weights


def check_neighbours(n: int, f: int, neighbours: Neighbours, rule: str) -> None:
    """Check that a neighbour counts.

    Raises:
        SettingError: If none does.
    """
    fewest = _FEWEST[neighbours]
    if not f <= n - fewest:
        raise SettingError(
            f"{rule} needs f >= 0 and n >= f + {fewest} updates, so that {neighbours.replace('-', ' - ')} >= 1 "
            f"neighbours count, got n={n} and f={f}; change f or add clients."
        )


class MultiKrum(Weighting):
    """Average the m updates of least score, s(i) = sum of ||x_i - x_j||^2 over the n - f - 2 nearest others j (sec. 4).

    The paper's guarantee needs n >= 2f + 3.  The rule runs beyond, as under bucketing, and promises nothing there: up
    to n = 2f + 1, f copies of one row, whatever it is, have the score 0.

    Args:
        f: Byzantine clients tolerated, 0 <= f <= n - 3.
        m: How many to average, 1 <= m <= n.  None: n - f (the BOBA paper's); with more there is no guarantee.
        neighbours: How many others count in a score.  "n-f-2": the paper's.  "n-f-1": the form that is proven to be
            (f, kappa)-robust for n >= 2f + 1 (Allouah et al. 2023, arXiv:2302.01772); f may be n - 2.

    Note:
        The scores are computed once, over all n, as in the paper; some public code runs Krum again after each choice.
        A row with NaN or inf is never chosen, even where fewer than m remain, is never a neighbour, and counts as one
        of the f.

    >>> import torch
    >>> MultiKrum(f=1)(torch.tensor([[0.0], [1.0], [2.0], [5.0], [54.0]]))
    tensor([2.])
    """

    exact = True

    def __init__(self, f: NonNegativeInt, m: PositiveInt | None = None, neighbours: Neighbours = "n-f-2"):
        self.f = f
        self.m = m
        self.neighbours = neighbours

    def least_n(self, n_classes: int) -> int:
        """As many as leave a neighbour to count, and m; see the base class."""
        return max(self.f + _FEWEST[self.neighbours], self.m or 0)

    def check(self, n: int, n_classes: int) -> None:
        """Compare f and m with n; see the base class."""
        check_neighbours(n, self.f, self.neighbours, "multi_krum")
        if self.m is not None and self.m > n:
            raise SettingError(
                f"multi_krum needs m <= n, got m={self.m} and n={n}; set aggregator.m, or null for n - f."
            )

    def distances(self, updates: Updates, server: ServerOracle) -> Callable[[Tensor], Tensor]:
        """Ask about many groups at once; see the base class."""
        if type(self) is not MultiKrum:  # which may weigh otherwise
            return super().distances(updates, server)
        return FromKrum(self.f, self.m, self.neighbours)

    def guarantee(self, n: int, n_classes: int) -> str | None:
        """Compare f and m with the bounds of the proof: a mean of m rows must leave f rows out; see the base class."""
        proven, m = _PROVEN[self.neighbours], n - self.f if self.m is None else self.m
        if n < 2 * self.f + proven:
            return f"no guarantee: needs n >= 2f + {proven}, has {n} updates for f = {self.f}"
        return (
            None if m <= n - self.f else f"no guarantee: needs m <= n - f, has {n} updates for f = {self.f} and m = {m}"
        )

    def weights(self, updates: Updates, server: ServerOracle) -> Float[Tensor, " n"]:
        """Weigh one round; see the base class."""
        return krum_weights(updates.centred.gram, self.f, self.m, self.neighbours, "multi_krum")


class Krum(Weighting):
    """Take the update of least score, the first of equal ones: `MultiKrum` with m = 1.

    Args:
        f: Byzantine clients tolerated, 0 <= f <= n - 3.
        neighbours: See `MultiKrum`.

    With n - f - 2 = 2 neighbours the scores are 5, 2, 5, 25 and 5105:

    >>> import torch
    >>> Krum(f=1)(torch.tensor([[0.0], [1.0], [2.0], [5.0], [54.0]]))
    tensor([1.])
    """

    exact = True

    def __init__(self, f: NonNegativeInt, neighbours: Neighbours = "n-f-2"):
        self.f = f
        self.neighbours = neighbours

    def least_n(self, n_classes: int) -> int:
        """As many as leave a neighbour to count; see the base class."""
        return self.f + _FEWEST[self.neighbours]

    def check(self, n: int, n_classes: int) -> None:
        """Compare f with n; see the base class."""
        check_neighbours(n, self.f, self.neighbours, "krum")

    def distances(self, updates: Updates, server: ServerOracle) -> Callable[[Tensor], Tensor]:
        """Ask about many groups at once; see the base class."""
        if type(self) is not Krum:  # which may weigh otherwise
            return super().distances(updates, server)
        return FromKrum(self.f, 1, self.neighbours)

    def guarantee(self, n: int, n_classes: int) -> str | None:
        """Compare f with the bound of the proof; see the base class."""
        return MultiKrum(self.f, 1, self.neighbours).guarantee(n, n_classes)

    def kappa(self, n: int, b: int, equal: bool) -> float | None:
        """Return the bound for f, which is proven with n - f - 1 neighbours; see the base class."""
        return krum_kappa(n, self.f).value if b <= self.f and self.neighbours == "n-f-1" else None

    def weights(self, updates: Updates, server: ServerOracle) -> Float[Tensor, " n"]:
        """Weigh one round; see the base class."""
        return krum_weights(updates.centred.gram, self.f, 1, self.neighbours)
