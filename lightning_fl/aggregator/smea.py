"""Smallest maximum eigenvalue averaging (SMEA): average the n - f updates with the least variance in any direction.

Youssef Allouah, Rachid Guerraoui, Nirupam Gupta, Rafael Pinot, John Stephan. On the Privacy-Robustness-Utility Trilemma
in Distributed Learning. ICML 2023. arXiv:2302.04787.
"""

from collections.abc import Iterator
from itertools import combinations, islice
from math import comb

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.ranges import NonNegativeInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.decomposition import threads_for
from lightning_fl.updates.finite import finite_rows, still_tolerated
from lightning_fl.updates.updates import Updates

_MOST_SUBSETS = 50_000
# Matrix entries decomposed at a time.
_ENTRIES = 2**20
# Parts into which an interval is cut in search of the least root, and how often: 16^14 is beyond float64.
_STEPS, _CUTS = 16, 14
# Another subset must lower the variance by more than rounding.
_BETTER = 1 - 1e-10


def smallest_eigenvalue_weights(gram: Float64[Tensor, "n n"], f: int) -> tuple[Float64[Tensor, " n"], bool]:
    """Give the rows of the subset equal weights, from inner products about any origin.

    Args:
        gram: Inner products.
        f: See `Smea`.

    Returns:
        The weights, and whether all subsets were tried.
    """
    n = len(gram)
    rows = finite_rows(gram.diagonal(), "smea")
    inner, f = gram[rows][:, rows], still_tolerated(f, n, len(rows))
    exact = comb(len(rows), f) <= _MOST_SUBSETS
    with threads_for(n):
        inside = _try_all(inner, f) if exact else _swap(inner, _drop(inner, f))
    return gram.new_zeros(n).index_fill(0, rows[inside], 1 / (len(rows) - f)), exact


def _centred(gram: Tensor) -> Tensor:
    """Inner products about the mean."""
    mean = gram.mean(-1, keepdim=True)
    return gram - mean - mean.mT + mean.mean(-2, keepdim=True)


def _try_all(gram: Tensor, f: int) -> Bool[Tensor, " n"]:
    """Of all subsets the lexicographically first one with the least eigenvalue."""
    n = len(gram)
    subsets, least, best = combinations(range(n), n - f), torch.inf, None
    for chunk in _chunks(subsets, max(1, _ENTRIES // (n - f) ** 2)):
        index = torch.tensor(chunk, device=gram.device)
        values = torch.linalg.eigvalsh(_centred(gram[index[:, :, None], index[:, None]]))[:, -1].clamp(min=0)
        if values.min() < _BETTER * least:
            least = values.min()
            best = index[(_BETTER * values <= least).to(torch.uint8).argmax()]
    inside = torch.zeros(n, dtype=torch.bool, device=gram.device)
    inside[best] = True
    return inside


def _chunks(items: Iterator[tuple[int, ...]], size: int) -> Iterator[list[tuple[int, ...]]]:
    while chunk := list(islice(items, size)):
        yield chunk


def _drop(gram: Tensor, f: int) -> Bool[Tensor, " n"]:
    """Take f times the row out without which the eigenvalue is least."""
    inside = torch.ones(len(gram), dtype=torch.bool, device=gram.device)
    for _ in range(f):
        rows = inside.nonzero().flatten()
        inside[rows[_best_drop(gram[rows][:, rows])]] = False
    return inside


def _swap(gram: Tensor, inside: Bool[Tensor, " n"]) -> Bool[Tensor, " n"]:
    """Swap a row inside and one outside as long as that lowers the eigenvalue, each time by the best of all swaps."""
    least = _value(gram, inside)
    while (swap := _best_swap(gram, inside)) is not None:
        swapped = inside.clone()
        swapped[list(swap)] = ~swapped[list(swap)]
        if not (value := _value(gram, swapped)) < _BETTER * least:
            break
        least, inside = value, swapped
    return inside


def _value(gram: Tensor, inside: Tensor) -> float:
    """The largest eigenvalue of the scatter of the rows inside."""
    rows = inside.nonzero().flatten()
    return torch.linalg.eigvalsh(_centred(gram[rows][:, rows]))[-1].item()


def _best_swap(gram: Tensor, inside: Tensor) -> tuple[int, int] | None:
    """The rows outside and inside whose swap makes the eigenvalue least; None if no swap lowers it.

    With z outside and y_j inside about the mean of the m rows inside, a swap makes their scatter T into
    T + a z z^T - b y y^T, where y = y_j - z / (m + 1), a = m / (m + 1) and b = 1 / a.  Between the two largest
    eigenvalues of T, M = t - T has one negative eigenvalue.  There, by the inertia of Schur complements, t is above all
    eigenvalues of the new scatter if and only if

        [[1/a - <z, M^-1 z>, -<z, M^-1 y>], [-<z, M^-1 y>, -1/b - <y, M^-1 y>]]

    is positive definite: one decomposition serves all swaps, and the least t for which there is one, by bisection.
    """
    m = int(inside.sum())
    a, b = m / (m + 1), (m + 1) / m
    within = gram[inside].mean(0)
    about = gram - within[:, None] - within + within[inside].mean()
    values, vectors = torch.linalg.eigh(about[inside][:, inside])
    solid = values > 2.0**-44 * values[-1]
    if not solid.any():  # all rows inside are equal
        return None
    values, along = values[solid], about[:, inside] @ (vectors[:, solid] / values[solid].sqrt())
    # A row this far out makes the eigenvalue larger whatever goes; its products would drown the others'.
    lengths = about.diagonal().clamp(min=0).sqrt()
    nearer = (1 - 1 / m) ** 0.5 * (lengths - lengths[inside].max() / (m - 1)) < values[-1].sqrt()
    outside, own = (~inside & nearer).nonzero().flatten(), inside.nonzero().flatten()
    if not len(outside):
        return None
    rest = about[outside][:, outside].diagonal() - along[outside].square().sum(1)  # of z, beyond the rows inside

    def lower(t: float) -> Tensor:
        """Which swaps bring all eigenvalues below t."""
        scaled = along / (t - values)
        z_z = (scaled[outside] * along[outside]).sum(1, keepdim=True) + rest[:, None] / t
        z_y = scaled[outside] @ along[own].T
        y_y = (scaled[own] * along[own]).sum(1) - (2 * z_y - z_z / (m + 1)) / (m + 1)
        z_y = z_y - z_z / (m + 1)
        return (1 / a > z_z) & (-1 / b > y_y) & ((1 / a - z_z) * (-1 / b - y_y) > z_y.square())

    low, high = values[-2].item() if len(values) > 1 else 0.0, _BETTER * values[-1].item()
    if low >= high or not (found := lower(high)).any():
        return None
    for _ in range(40):
        if _alike(about, outside[found.any(1)]) and _alike(about, own[found.any(0)]):
            break
        middle = (low + high) / 2
        if (better := lower(middle)).any():
            high, found = middle, better
        else:
            low = middle
    z, y = found.nonzero()[0].tolist()
    return int(outside[z]), int(own[y])


def _alike(gram: Tensor, rows: Tensor) -> bool:
    """Whether these rows are copies of one another, so that it does not matter which of them is chosen."""
    return len(rows) == 1 or bool((gram[rows] == gram[rows[0]]).all())


def _best_drop(gram: Tensor) -> int:
    """Of m rows the first one without which the largest eigenvalue of their scatter is least, from one decomposition.

    Without y_j about the mean the scatter is T - m / (m - 1) y_j y_j^T.  With eigenpairs (d_k, v_k) of T its largest
    eigenvalue is the root of 1 = m / (m - 1) sum_k <v_k, y_j>^2 / (d_k - t) between d_2 and d_1.  The interval is cut
    again and again, and only rows whose root is in the lowest part with any root stay.
    """
    m = len(gram)
    values, vectors = torch.linalg.eigh(_centred(gram))
    parts = m / (m - 1) * values.clamp(min=0) * vectors.square()  # of y_j along v_k, squared
    rows, low, high = torch.arange(m, device=gram.device), values[-2], values[-1]
    shares = torch.linspace(0, 1, _STEPS + 1).to(values)[1:]
    for _ in range(_CUTS):
        if _alike(gram, rows):
            break
        between = torch.lerp(low, high, shares)
        below = ~(parts[rows] @ (1 / (values[:, None] - between)) < 1)  # the root; NaN where both values are the same
        below[:, -1] = True
        step = int(below.any(0).to(torch.uint8).argmax())
        rows, low, high = rows[below[:, step]], between[step - 1] if step else low, between[step]
    return int(rows[0])


class Smea(Aggregator):
    """Average the n - f updates S with the least top eigenvalue of 1/|S| sum (x_i - mean_S)(x_i - mean_S)^T.

    Of subsets with equal eigenvalues, the lexicographically first counts.

    Args:
        f: Byzantine clients tolerated, 0 <= 2f < n.

    Note:
        Up to 50,000 subsets are all tried.  Beyond, f times the update goes without which the eigenvalue is least, and
        then updates inside and outside are swapped as long as that lowers it; this need not find the best subset.  An
        update with NaN or inf is left out and counts among the f.

    >>> import torch
    >>> Smea(f=1)(torch.tensor([[0.0], [1.0], [2.0], [60.0]]))
    tensor([1.])
    """

    least = "2f + 1"
    exact = True

    def __init__(self, f: NonNegativeInt):
        self.f = f

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        weights, exact = smallest_eigenvalue_weights(updates.centred.gram, self.f)
        return Aggregation(updates.combination(weights), weights, {"exact": int(exact)})
