"""Medians over clients, and what is far from them."""

from typing import Literal

from jaxtyping import Bool, Float64
from torch import Tensor

MedianOf = Literal["middle", "lower"]
# Relative size of a deviation, and of what a score lacks of its limit, that rounding alone can make.
_FLAT, _SAME = 1e-12, 1e-9


def middle(values: Float64[Tensor, "..."]) -> Float64[Tensor, "..."]:
    """Return the median over the first dimension, the mean of the middle two where n is even."""
    ordered, n = values.sort(0).values, len(values)
    return ordered[(n - 1) // 2] / 2 + ordered[n // 2] / 2


def median_of(norms: Float64[Tensor, " n"], median: MedianOf) -> Float64[Tensor, ""]:
    """Return the mean of the middle two where n is even, or the lower one, as torch.median does."""
    return middle(norms) if median == "middle" else norms.median()


def usual(values: Float64[Tensor, "..."], limit: float) -> Bool[Tensor, "..."]:
    """Find what is less than ``limit`` standard deviations from the median.

    Args:
        values: Finite, one row per client; each column is judged by itself.
        limit: lambda.  All are usual where the deviation, over n, is rounding; a score that is lambda up to rounding is
            not below it.

    >>> import torch
    >>> usual(torch.tensor([1.0, 2.0, 3.0, 9.0]).double(), limit=1.0)
    tensor([ True,  True,  True, False])
    """
    away = (values - middle(values)).abs()
    deviation = values.std(0, correction=0)
    flat = deviation <= _FLAT * values.abs().amax(0)
    return flat | (away < limit * (1 - _SAME) * deviation)
