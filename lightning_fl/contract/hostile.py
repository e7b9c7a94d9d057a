"""Rows that Byzantine clients may send to a rule, beside honest ones."""

from collections.abc import Sequence

import torch
from hypothesis import strategies as st
from torch import Tensor

VALUES: list[float | str] = [float("nan"), float("inf"), float("-inf"), 1e30, -1e30, 0.0, "copy"]


def lists(most: int, least: int = 1, also: Sequence[float | str] = ()) -> st.SearchStrategy[list[float | str]]:
    """Draw from `least` to `most` of `VALUES` and of those in `also`."""
    return st.lists(st.sampled_from([*VALUES, *also]), min_size=least, max_size=most)


def rows(honest: Tensor, values: Sequence[float | str], entries: int | None = None, away: float = 1.0) -> Tensor:
    """Give the (h, d) honest rows, and below them one row for each value.

    Args:
        honest: (h, d) honest rows.
        values: What each Byzantine client sends: a number in place of an honest row's first entries, "copy" for the
            first honest row, so that copies agree with each other, "alone" for 1e30 in an entry of its own, so that no
            two point the same way, or "away" for an honest row times `away`.
        entries: How many entries a number replaces; None for all.
        away: The factor of "away".
    """
    bad = honest[torch.arange(len(values)) % len(honest)]
    for i, (row, value) in enumerate(zip(bad, values, strict=True)):
        if value == "copy":
            row[:] = honest[0]
        elif value == "alone":
            row[i % len(row)] = 1e30
        elif value == "away":
            row *= away
        else:
            row[:entries] = value
    return torch.cat([honest, bad])
