"""Shares of a number."""

from math import floor


def floored(share: float, n: int) -> int:
    """How many of n a share is, rounded down, as a person counts.

    >>> floored(0.29, 100), int(0.29 * 100)
    (29, 28)
    """
    return floor(share * n * (1 + 1e-12) + 1e-9)  # a share may be what 1 - 0.9 leaves
