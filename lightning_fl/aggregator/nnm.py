"""Nearest-neighbour mixing (NNM): replace every update by the mean of its n - f nearest ones, then ask a rule.

Youssef Allouah, Sadegh Farhadkhani, Rachid Guerraoui, Nirupam Gupta, Rafael Pinot, John Stephan. Fixing by Mixing: A
Recipe for Optimal Byzantine ML under Heterogeneity. AISTATS 2023. arXiv:2302.01772.
"""

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregator, check_integer
from lightning_fl.aggregator.mixing import Mixing, finite_shares, told_fewer
from lightning_fl.columns import smallest
from lightning_fl.errors import SettingError
from lightning_fl.products import squared_distances
from lightning_fl.rows import finite_rows
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.theory.robustness import mixed_kappa
from lightning_fl.updates import Updates


def nnm_matrix(gram: Float64[Tensor, "n n"], f: int) -> Float64[Tensor, "n n"]:
    """Write the mixed updates as M X, from inner products about any origin; see `nearest_neighbor_mixing`.

    >>> nnm_matrix(torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 5.0], [0.0, 5.0, 25.0]]).double(), f=1)
    tensor([[0.5000, 0.5000, 0.0000],
            [0.5000, 0.5000, 0.0000],
            [0.0000, 0.5000, 0.5000]], dtype=torch.float64)
    """
    n = len(gram)
    _check(n, f)
    rows = finite_rows(gram.diagonal(), "nnm")
    keep = min(n - f, len(rows))
    distances = squared_distances(gram[rows][:, rows]).fill_diagonal_(-1)  # itself first, even if others are equal
    matrix = torch.eye(n, dtype=gram.dtype, device=gram.device)
    matrix[rows[:, None], rows] = smallest(distances, keep).to(gram) / keep
    return matrix


def _check(n: int, f: int) -> None:
    check_integer(f, "nnm")
    if not 0 <= f < n:
        raise SettingError(f"nnm needs 0 <= f < n updates, got n={n} and f={f}; change f or add clients.")


def nearest_neighbor_mixing(updates: Float[Tensor, "n d"], f: int) -> Float[Tensor, "n d"]:
    """Mix each update with its neighbours, y_i = mean of the n - f updates nearest to x_i, itself among them (Alg. 2).

    A rule that is (f, kappa)-robust is (f, kappa')-robust after it, kappa' <= 8 f / (n - f) (kappa + 1) (Lemma 1).

    Args:
        updates: One update per row.
        f: Byzantine clients tolerated, 0 <= f < n; the guarantee needs f < n/2.

    Returns:
        One mixed update per row, for any rule with the same f.

    Raises:
        SettingError: If updates are not a floating-point matrix, f is out of range, or no row is finite.

    Note:
        Of equally near updates, up to rounding, the first ones count.  Some public code takes n - f others beside x_i.
        A row with NaN or inf counts as one of the f, is never a neighbour, and becomes a row of NaN.  Data weights are
        not used.

    >>> nearest_neighbor_mixing(torch.tensor([[0.0], [1.0], [5.0]]), f=1)
    tensor([[0.5000],
            [0.5000],
            [3.0000]])
    """
    rows = Updates(updates)
    return rows.mixed(nnm_matrix(rows.centred.gram, f)).rows


class Nnm(Mixing):
    """Ask another rule about updates mixed with their neighbours; see `nearest_neighbor_mixing`.

    The mixed updates weigh the same; those that are not finite weigh nothing.

    Args:
        rule: The rule, told the same f.
        f: Byzantine clients tolerated, 0 <= f < n.
    """

    def __init__(self, rule: Aggregator, f: int):
        super().__init__(rule)
        self.f = f

    def check(self, n: int, n_classes: int) -> None:
        """Check f, and the rule; see the base class."""
        _check(n, self.f)
        super().check(n, n_classes)

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
