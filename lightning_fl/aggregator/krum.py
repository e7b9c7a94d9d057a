"""Krum and Multi-Krum: trust the updates that have the nearest neighbours.

Peva Blanchard, El Mahdi El Mhamdi, Rachid Guerraoui, Julien Stainer. Machine Learning with Adversaries: Byzantine
Tolerant Gradient Descent. NeurIPS 2017. arXiv:1703.02757.
"""

from collections.abc import Callable
from typing import Literal, get_args

from jaxtyping import Float, Float64
from torch import Tensor

from lightning_fl.aggregator.base import Weighting, check_integer
from lightning_fl.aggregator.krum_groups import FromKrum
from lightning_fl.errors import SettingError, check_choice
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.theory.robustness import krum_kappa
from lightning_fl.updates.columns import sorted_rows
from lightning_fl.updates.products import among, by_parts, squared_distances
from lightning_fl.updates.rows import finite_rows, still_tolerated
from lightning_fl.updates.updates import Updates

Neighbours = Literal["n-f-2", "n-f-1"]
_FEWEST = {"n-f-2": 3, "n-f-1": 2}  # n - f from which a neighbour counts
_PROVEN = {"n-f-2": 3, "n-f-1": 1}  # n - 2f from which the guarantee holds


def krum_weights(gram: Float64[Tensor, "n n"], f: int, neighbours: Neighbours = "n-f-2") -> Float64[Tensor, " n"]:
    """Give the row of least score weight 1, from inner products; see `krum`."""
    return _weights(gram, f, 1, neighbours, "krum")


def multi_krum_weights(
    gram: Float64[Tensor, "n n"], f: int, m: int | None = None, neighbours: Neighbours = "n-f-2"
) -> Float64[Tensor, " n"]:
    """Give the m rows of least score weight 1/m each, from inner products; see `multi_krum`."""
    return _weights(gram, f, m, neighbours, "multi_krum")


def _weights(gram: Tensor, f: int, m: int | None, neighbours: Neighbours, rule: str) -> Tensor:
    n = len(gram)
    _check(n, f, m, neighbours, rule)
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


def _check(n: int, f: int, m: int | None, neighbours: str, rule: str) -> None:
    check_choice("krum's neighbours", neighbours, get_args(Neighbours))
    check_integer(f, rule)
    fewest = _FEWEST[neighbours]
    if not 0 <= f <= n - fewest:
        raise SettingError(
            f"{rule} needs f >= 0 and n >= f + {fewest} updates, so that {neighbours.replace('-', ' - ')} >= 1 "
            f"neighbours count, got n={n} and f={f}; change f or add clients."
        )
    if m is None:
        return
    check_integer(m, "multi_krum", "m")
    if not 1 <= m <= n:
        raise SettingError(f"multi_krum needs 1 <= m <= n, got m={m} and n={n}; set aggregator.m, or null for n - f.")


def _beyond(n: int, f: int, m: int, neighbours: Neighbours) -> str | None:
    """Say what no longer holds: the bound on f, or that a mean of m rows must leave f rows out."""
    proven = _PROVEN[neighbours]
    if n < 2 * f + proven:
        return f"no guarantee: needs n >= 2f + {proven}, has {n} updates for f = {f}"
    return None if m <= n - f else f"no guarantee: needs m <= n - f, has {n} updates for f = {f} and m = {m}"


def krum(updates: Float[Tensor, "n d"], f: int, neighbours: Neighbours = "n-f-2") -> Float[Tensor, " d"]:
    """Return the update of least score, s(i) = sum of ||x_i - x_j||^2 over the n - f - 2 nearest others j (sec. 4).

    The paper's guarantee needs n >= 2f + 3.  The rule runs beyond, as under bucketing, and promises nothing there: up
    to n = 2f + 1, f copies of one row, whatever it is, have the score 0.

    Args:
        updates: One update per row.
        f: Byzantine clients tolerated, 0 <= f <= n - 3.
        neighbours: How many others count in a score.  "n-f-2": the paper's.  "n-f-1": the form that is proven to be
            (f, kappa)-robust for n >= 2f + 1 (Allouah et al. 2023, arXiv:2302.01772); f may be n - 2.

    Returns:
        One of the updates; of equal scores, the first.

    Raises:
        SettingError: If updates are not a floating-point matrix, a setting is out of range, or no row is finite.

    Note:
        A row with NaN or inf is never chosen, is never a neighbour, and counts as one of the f.

    With n - f - 2 = 2 neighbours the scores are 5, 2, 5, 25 and 5105:

    >>> import torch
    >>> krum(torch.tensor([[0.0], [1.0], [2.0], [5.0], [54.0]]), f=1)
    tensor([1.])
    """
    rows = Updates(updates)
    return rows.combine(krum_weights(rows.centred.gram, f, neighbours))


def multi_krum(
    updates: Float[Tensor, "n d"], f: int, m: int | None = None, neighbours: Neighbours = "n-f-2"
) -> Float[Tensor, " d"]:
    """Average the m updates of least score; see `krum`.

    Args:
        updates: One update per row.
        f: Byzantine clients tolerated, 0 <= f <= n - 3.
        m: How many to average, 1 <= m <= n.  None: n - f (the BOBA paper's); with more there is no guarantee.
        neighbours: See `krum`.

    Returns:
        Their mean.

    Raises:
        SettingError: As `krum`; if m is out of range.

    Note:
        The scores are computed once, over all n, as in the paper; some public code runs Krum again after each choice.
        Rows with NaN or inf are left out even where fewer than m remain.

    >>> import torch
    >>> multi_krum(torch.tensor([[0.0], [1.0], [2.0], [5.0], [54.0]]), f=1)
    tensor([2.])
    """
    rows = Updates(updates)
    return rows.combine(multi_krum_weights(rows.centred.gram, f, m, neighbours))


class Krum(Weighting):
    """Take the update of least score; see `krum` for the settings."""

    def __init__(self, f: int, neighbours: Neighbours = "n-f-2"):
        check_choice("krum's neighbours", neighbours, get_args(Neighbours))
        self.f = f
        self.neighbours = neighbours

    def least_n(self, n_classes: int) -> int:
        """As many as leave a neighbour to count; see the base class."""
        return self.f + _FEWEST[self.neighbours]

    def check(self, n: int, n_classes: int) -> None:
        """Check f and neighbours; see the base class."""
        _check(n, self.f, None, self.neighbours, "krum")

    def distances(self, updates: Updates, server: ServerOracle) -> Callable[[Tensor], Tensor]:
        """Ask about many groups at once; see the base class."""
        if type(self) is not Krum:  # which may weigh otherwise
            return super().distances(updates, server)
        return FromKrum(self.f, 1, self.neighbours)

    def guarantee(self, n: int, n_classes: int) -> str | None:
        """Compare f with the bound of the proof; see the base class."""
        return _beyond(n, self.f, 1, self.neighbours)

    def kappa(self, n: int, b: int, equal: bool) -> float | None:
        """Return the bound for f, which is proven with n - f - 1 neighbours; see the base class."""
        return krum_kappa(n, self.f).value if b <= self.f and self.neighbours == "n-f-1" else None

    def weights(self, updates: Updates, server: ServerOracle) -> Float[Tensor, " n"]:
        """Weigh one round; see the base class."""
        return krum_weights(updates.centred.gram, self.f, self.neighbours)


class MultiKrum(Weighting):
    """Average the m updates of least score; see `multi_krum` for the settings."""

    def __init__(self, f: int, m: int | None = None, neighbours: Neighbours = "n-f-2"):
        check_choice("krum's neighbours", neighbours, get_args(Neighbours))
        self.f = f
        self.m = m
        self.neighbours = neighbours

    def least_n(self, n_classes: int) -> int:
        """As many as leave a neighbour to count, and m; see the base class."""
        return max(self.f + _FEWEST[self.neighbours], self.m or 0)

    def check(self, n: int, n_classes: int) -> None:
        """Check f, m and neighbours; see the base class."""
        _check(n, self.f, self.m, self.neighbours, "multi_krum")

    def distances(self, updates: Updates, server: ServerOracle) -> Callable[[Tensor], Tensor]:
        """Ask about many groups at once; see the base class."""
        if type(self) is not MultiKrum:  # which may weigh otherwise
            return super().distances(updates, server)
        return FromKrum(self.f, self.m, self.neighbours)

    def guarantee(self, n: int, n_classes: int) -> str | None:
        """Compare f and m with the bounds of the proof; see the base class."""
        return _beyond(n, self.f, n - self.f if self.m is None else self.m, self.neighbours)

    def weights(self, updates: Updates, server: ServerOracle) -> Float[Tensor, " n"]:
        """Weigh one round; see the base class."""
        return multi_krum_weights(updates.centred.gram, self.f, self.m, self.neighbours)
