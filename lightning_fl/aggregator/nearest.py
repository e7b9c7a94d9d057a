"""Weights of the nearest updates."""

from jaxtyping import Float64
from torch import Tensor

from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.ordered import smallest


def nearest_weights(distances: Float64[Tensor, " n"], f: int, rule: str) -> Float64[Tensor, " n"]:
    """Give the n - f rows of least distance equal weights, of equal ones up to rounding the first.

    Args:
        distances: NaN or inf where a row is not finite; such a row counts among the f.
        f: How many are left out, below n.
        rule: Who asks, for the error.

    >>> import torch
    >>> nearest_weights(torch.tensor([4.0, 1.0, 1.0, 9.0]).double(), 2, "ctma")
    tensor([0.0000, 0.5000, 0.5000, 0.0000], dtype=torch.float64)
    """
    n = len(distances)
    rows = finite_rows(distances, rule)
    keep = min(n - f, len(rows))
    near = smallest(distances[rows][None], keep)[0]
    return distances.new_zeros(n).index_put((rows,), near.to(distances) / keep)
