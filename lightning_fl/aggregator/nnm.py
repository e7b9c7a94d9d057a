"""Nearest-neighbour mixing (NNM): replace every update by the mean of its n - f nearest ones, then ask a rule.

Youssef Allouah, Sadegh Farhadkhani, Rachid Guerraoui, Nirupam Gupta, Rafael Pinot, John Stephan. Fixing by Mixing: A
Recipe for Optimal Byzantine ML under Heterogeneity. AISTATS 2023. arXiv:2302.01772.
"""

import torch
from jaxtyping import Float64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregator
from lightning_fl.aggregator.guarantee import told_fewer
from lightning_fl.aggregator.mixing import Mixing, finite_shares
from lightning_fl.ranges import NonNegativeInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.theory.robustness import mixed_kappa
from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.ordered import ROUNDING, smallest
from lightning_fl.updates.products import squared_distances
from lightning_fl.updates.updates import Updates

# Squared distance between rows, relative to that from which they are seen, below which they are one and the same.
_EQUAL = 2.0**-30


def nnm_matrix(gram: Float64[Tensor, "n n"], f: int) -> Float64[Tensor, "n n"]:
    """Write the mixed updates as M X, from inner products about any origin; see `Nnm`.

    >>> nnm_matrix(torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 5.0], [0.0, 5.0, 25.0]]).double(), f=1)
    tensor([[0.5000, 0.5000, 0.0000],
            [0.5000, 0.5000, 0.0000],
            [0.0000, 0.5000, 0.5000]], dtype=torch.float64)
    """
    n = len(gram)
    rows = finite_rows(gram.diagonal(), "nnm")
    keep = min(n - f, len(rows))
    distances = squared_distances(gram[rows][:, rows]).fill_diagonal_(-1)  # itself first, even if others are equal
    matrix = torch.eye(n, dtype=gram.dtype, device=gram.device)
    matrix[rows[:, None], rows] = _nearest(distances, keep) / keep
    return matrix


def _nearest(distances: Float64[Tensor, "m m"], keep: int) -> Float64[Tensor, "m m"]:
    """Say how far each row counts as near: 1 or 0, and a share where other rows compete for the last places.

    >>> _nearest(torch.tensor([[-1.0, 4.0, 4.0], [4.0, -1.0, 9.0], [4.0, 9.0, -1.0]]).double(), keep=2)
    tensor([[1.0000, 0.5000, 0.5000],
            [1.0000, 1.0000, 0.0000],
            [1.0000, 0.0000, 1.0000]], dtype=torch.float64)
    """
    chosen = smallest(distances, keep)
    last = distances.masked_fill(~chosen, -1).amax(1, keepdim=True)
    ties = (distances - last).abs() <= ROUNDING * last.abs()
    near = chosen.to(distances)
    # Which of equal rows counts is all the same; others share the places, else their order would decide.
    row = (ties & ~chosen).any(1).nonzero().flatten()
    tied = ties[row].to(distances)
    apart = (tied @ distances.clamp(min=0) * tied).sum(1) / tied.sum(1).square()  # the mean over pairs
    row = row[apart > _EQUAL * last[row, 0]]
    tied = ties[row].to(distances)
    share = (near[row] * tied).sum(1, keepdim=True) / tied.sum(1, keepdim=True)
    near[row] = torch.where(ties[row], share, near[row])
    return near


class Nnm(Mixing):
    """Mix each update with its neighbours, y_i = mean of the n - f updates nearest to x_i, itself among them (Alg. 2).

    A rule that is (f, kappa)-robust is (f, kappa')-robust after it, kappa' <= 8 f / (n - f) (kappa + 1) (Lemma 1).

    Args:
        rule: The rule, told the same f.
        f: Byzantine clients tolerated, 0 <= f < n; the guarantee needs f < n/2.

    Note:
        Equally near updates, up to rounding, share the last places, as clipped ones do for a row of zeros.  Some
        public code takes n - f others beside x_i.  A row with NaN or inf counts as one of the f, is never a neighbour,
        and becomes a row of NaN.  Data weights are not used.

    Of 0, 1 and 5 the mixed updates are 0.5, 0.5 and 3:

    >>> import torch
    >>> from lightning_fl.aggregator.median import Median
    >>> Nnm(Median(), f=1)(torch.tensor([[0.0], [1.0], [5.0]]))
    tensor([0.5000])
    """

    least = "f + 1"
    exact = True

    def __init__(self, rule: Aggregator, f: NonNegativeInt):
        super().__init__(rule)
        self.f = f

    def guarantee(self, n: int, n_classes: int) -> str | None:
        """Say whether fewer than half are Byzantine, and as many as the rule is told; see the base class."""
        if n <= 2 * self.f:
            return f"no guarantee: needs n >= 2f + 1, has {n} updates for f = {self.f}"
        return told_fewer(self.rule, self.f) or super().guarantee(n, n_classes)

    def kappa(self, n: int, b: int, equal: bool) -> float | None:
        """Return the bound for f from the rule's own for as many; see the base class."""
        own = self.rule.kappa(n, self.f, True) if b <= self.f else None
        return None if own is None else mixed_kappa(n, self.f, own).value

    def mix(
        self, updates: Updates, server: ServerOracle
    ) -> tuple[Float64[Tensor, "m n"], Float64[Tensor, " m"] | None]:
        """Mix with the nearest; see the base class."""
        gram = updates.centred.gram
        shares = finite_shares(torch.ones_like(updates.data_weights), finite_rows(gram.diagonal(), "nnm"))
        return nnm_matrix(gram, self.f), shares
