"""Krum and Multi-Krum: trust the updates that have the nearest neighbours.

Peva Blanchard, El Mahdi El Mhamdi, Rachid Guerraoui, Julien Stainer. Machine Learning with Adversaries: Byzantine
Tolerant Gradient Descent. NeurIPS 2017. arXiv:1703.02757.
"""

from jaxtyping import Float, Float64
from torch import Tensor

from lightning_fl.aggregator.base import Weighting
from lightning_fl.errors import SettingError
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates import Updates, finite_rows, squared_distances


def krum_weights(gram: Float64[Tensor, "n n"], f: int) -> Float64[Tensor, " n"]:
    """Give the row of least score weight 1, from inner products; see `krum`."""
    return multi_krum_weights(gram, f, m=1)


def multi_krum_weights(gram: Float64[Tensor, "n n"], f: int, m: int | None = None) -> Float64[Tensor, " n"]:
    """Give the m rows of least score weight 1/m each, from inner products; see `multi_krum`."""
    n = len(gram)
    _check(n, f, m)
    rows = finite_rows(gram.diagonal(), "krum")
    keep = len(rows) - max(f - (n - len(rows)), 0)
    m = keep if m is None else min(m, len(rows))
    distances = squared_distances(gram[rows][:, rows])
    scores = distances.sort(dim=1).values[:, : keep - 1].sum(1)  # itself at 0, and keep - 2 others
    weights = gram.new_zeros(n)
    weights[rows[scores.argsort(stable=True)[:m]]] = 1 / m
    return weights


def _check(n: int, f: int, m: int | None) -> None:
    if not 0 <= f <= n - 3:
        raise SettingError(
            f"krum needs f >= 0 and n >= f + 3 updates, so that n - f - 2 >= 1 neighbours count, got n={n} and f={f}; "
            f"change f or add clients."
        )
    if m is not None and not 1 <= m <= n:
        raise SettingError(f"multi_krum needs 1 <= m <= n, got m={m} and n={n}; set aggregator.m, or null for n - f.")


def krum(updates: Float[Tensor, "n d"], f: int) -> Float[Tensor, " d"]:
    """Return the update of least score, s(i) = sum of ||x_i - x_j||^2 over the n - f - 2 nearest others j (sec. 4).

    Args:
        updates: One update a row.
        f: Byzantine clients tolerated, 0 <= f <= n - 3.  The paper's guarantee needs n >= 2f + 3; the rule does not,
            and under bucketing it runs beyond.

    Returns:
        One of the updates; of equal scores, the first.

    Raises:
        SettingError: If updates are not a floating-point matrix, f is out of range, or no row is finite.

    Note:
        A row with NaN or inf is never chosen, is nobody's neighbour, and counts as one of the f.

    With n - f - 2 = 2 neighbours the scores are 5, 2, 5, 25 and 5329:

    >>> import torch
    >>> krum(torch.tensor([[0.0], [1.0], [2.0], [5.0], [54.0]]), f=1)
    tensor([1.])
    """
    rows = Updates(updates)
    return rows.combine(krum_weights(rows.centred.gram, f))


def multi_krum(updates: Float[Tensor, "n d"], f: int, m: int | None = None) -> Float[Tensor, " d"]:
    """Average the m updates of least score; see `krum`.

    Args:
        updates: One update a row.
        f: Byzantine clients tolerated, 0 <= f <= n - 3.
        m: How many to average, 1 <= m <= n.  None: n - f (the BOBA paper's).

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
    return rows.combine(multi_krum_weights(rows.centred.gram, f, m))


class Krum(Weighting):
    """Take the update of least score; see `krum` for f."""

    def __init__(self, f: int):
        self.f = f

    def check(self, n: int, n_classes: int) -> None:
        """Check f; see the base class."""
        _check(n, self.f, None)

    def weights(self, updates: Updates, server: ServerOracle) -> Float[Tensor, " n"]:
        """Weigh one round; see the base class."""
        return krum_weights(updates.centred.gram, self.f)


class MultiKrum(Weighting):
    """Average the m updates of least score; see `multi_krum` for f and m."""

    def __init__(self, f: int, m: int | None):
        self.f = f
        self.m = m

    def check(self, n: int, n_classes: int) -> None:
        """Check f and m; see the base class."""
        _check(n, self.f, self.m)

    def weights(self, updates: Updates, server: ServerOracle) -> Float[Tensor, " n"]:
        """Weigh one round; see the base class."""
        return multi_krum_weights(updates.centred.gram, self.f, self.m)
