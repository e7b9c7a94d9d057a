"""Shares of a number."""

from math import floor


def floored(share: float, n: int) -> int:
    """How many of n a share is, rounded down, as a person counts.

    >>> floored(0.29, 100), int(0.29 * 100)
    (29, 28)
    """
    return floor(share * n + 1e-9)
