"""How far a vector, such as a rule's answer, is from the rows."""

from collections.abc import Sequence
from math import isfinite

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from lightning_fl.updates.combinations import squares_of
from lightning_fl.updates.products import float64_columns
from lightning_fl.updates.rows import broken_rows, mean_and_squares
from lightning_fl.updates.updates import Combination, Updates

# Share of the squared mean that a variance must exceed to be taken from sums in float32.
_CLEAR = 2.0**-20
# Variance of a coordinate, on average, below which squares in float32 may have vanished.
_VISIBLE = 1e-30


def deviation(
    updates: Updates, vector: Float[Tensor, " d"], h: int, quick: Sequence[float] | None = None
) -> tuple[float, float, float]:
    """Compare a vector with the mean of the first h rows.

    Args:
        updates: The round.
        vector: The vector.
        h: How many rows; of them those that are not finite are left out.
        quick: What `quick_deviation` has found.  None: ask it.

    Returns:
        ||vector - mean||^2, (1/h) sum_i ||x_i - mean||^2 and ||mean||^2; all NaN where no row is finite.

    >>> deviation(Updates(torch.tensor([[0.0], [2.0], [90.0]])), torch.tensor([4.0]), 2)
    (9.0, 1.0, 1.0)
    """
    error, variance, square = quick_deviation(updates, vector, h).tolist() if quick is None else quick
    if variance > 0 and isfinite(error + variance + square):
        return error, variance, square
    rows, vector = updates.here[:h], updates.held.own(vector)
    found = updates.held.total(_row_deviation(rows, vector))
    if not found.isfinite().all():
        kept = updates.held.total(broken_rows(rows).double()) == 0
        found = updates.held.total(_row_deviation(rows, vector, kept))
    error, variance, square = found.tolist()
    return error, variance, square


def quick_deviation(
    updates: Updates,
    vector: Float[Tensor, " d"],
    h: int,
    moments: tuple[Float[Tensor, " _"], Float[Tensor, " _"]] | None = None,
) -> Float64[Tensor, "3"]:
    """Find the same in one pass of float32, where that is enough; on a GPU, without waiting for it.

    Args:
        updates: The round.
        vector: See `deviation`.
        h: See `deviation`.
        moments: Moments of the first h rows, as the attack has asked for them.  None: not known.

    Returns:
        The three numbers.  They are worth nothing if the second is 0 or one of them is not finite.
    """
    mean, squares = mean_and_squares(updates.here[:h]) if moments is None else moments
    apart = (updates.held.own(vector) - mean).double()
    sums = [apart.square().sum(), squares.double().sum() / h, mean.double().square().sum()]
    error, variance, square = updates.held.total(torch.stack(sums))
    least = _VISIBLE * updates.d + _CLEAR * square
    return torch.stack([error, variance.where(variance > least, 0), square])


def _row_deviation(
    rows: Float[Tensor, "n d"], vector: Float[Tensor, " d"], kept: Bool[Tensor, " n"] | None = None
) -> Float64[Tensor, "3"]:
    """||vector - mean||^2, the kept rows' mean squared distance from their mean, ||mean||^2; NaN of no rows."""
    found = vector.new_zeros(3, dtype=torch.float64)
    h = len(rows) if kept is None else int(kept.sum())
    if not h:
        return found.fill_(torch.nan)
    for columns in float64_columns(rows, vector[None]):
        given, own = columns[-1], columns[:-1] if kept is None else columns[:-1][kept]
        mean = own.mean(0)
        own -= mean
        error, flat = given - mean, own.flatten()
        found += torch.stack([error @ error, flat @ flat / h, mean @ mean])
    return found


def squares_about(updates: Updates, answer: Float[Tensor, " d"] | Combination) -> Float64[Tensor, " n"]:
    """Compute ||x_i - answer||^2: from inner products where the answer combines these rows, else in one pass.

    >>> squares_about(Updates(torch.tensor([[1.0, 2.0], [3.0, 6.0]])), torch.tensor([1.0, 6.0]))
    tensor([16.,  4.], dtype=torch.float64)
    """
    if isinstance(answer, Combination):
        source, matrix = updates.unmixed(torch.eye(updates.n).to(updates.data_weights))
        if answer.updates is source and answer.extra is None:
            return squares_of(source.centred, matrix - answer.coefficients)
        answer = answer.vector
    squares = updates.here.new_zeros(updates.n, dtype=torch.float64)
    for columns in float64_columns(updates.here, updates.held.own(answer)[None]):
        squares += (columns[:-1] - columns[-1]).square_().sum(1)
    return updates.held.total(squares).cpu()
