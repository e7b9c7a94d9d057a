"""What Byzantine clients may send to a rule that is asked on a plain matrix."""

import torch

VALUES = [float("nan"), float("inf"), float("-inf"), 1e30, -1e30, 0.0, "copy"]


def problem(honest: torch.Tensor, values: list, whole: bool) -> torch.Tensor:
    """The honest rows, and one for each value: filled with it, whole or in the first entry only, or a copy."""
    bad = honest[: len(values)].clone()
    for row, value in zip(bad, values, strict=True):
        if value != "copy":
            row[slice(None) if whole else slice(1)] = value
    return torch.cat([honest, bad])
