"""Which rows a robust rule may look at: those that hold only finite numbers."""

from collections.abc import Sized

from jaxtyping import Float, Float64, Int64
from torch import Tensor

from lightning_fl.errors import DivergedError
from lightning_fl.updates.rows import check_rows, which_finite


def finite_rows(
    squares: Float64[Tensor, " n"], rule: str, weights: Float[Tensor, " n"] | None = None
) -> Int64[Tensor, " m"]:
    """Find the rows that a robust rule may look at: those that hold only finite numbers.

    The others count among the f that a rule tolerates, and get weight 0.

    Args:
        squares: ||x_i||^2, such as the Gram matrix's diagonal, or anything else that is finite where the row is.
        rule: Who asks, for the error.
        weights: Rows of weight 0 do not count.  None: all do.

    Returns:
        Their numbers, ascending.

    Raises:
        DivergedError: If there is none.
    """
    if weights is None:
        rows = squares.isfinite().nonzero().flatten()
        among = f"{len(squares)}"
    else:
        rows = (squares.isfinite() & (weights != 0)).nonzero().flatten()
        among = f"the {int((weights != 0).sum())} that have data weight"
    check_any(rows, f"{among} (a length above 1e75 is inf)", rule)
    return rows


def still_tolerated(f: int, n: int, m: int) -> int:
    """Count how many of m finite rows a rule of f tolerates: the n - m others are the first of the f.

    >>> still_tolerated(f=3, n=10, m=9), still_tolerated(f=3, n=10, m=5)
    (2, 0)
    """
    return max(f - (n - m), 0)


def finite_only(updates: Float[Tensor, "n d"], rule: str) -> Float[Tensor, "m d"]:
    """Drop the rows that hold NaN or inf.

    Args:
        updates: One update per row.
        rule: Who asks, for the error.

    Returns:
        The others, in order, which autograd does not follow; no copy where all are finite.

    Raises:
        SettingError: If updates are not a floating-point matrix.
        DivergedError: If no row is finite.
    """
    check_rows(updates, "updates")
    kept = [i for i, fine in enumerate(which_finite(updates)) if fine]
    check_any(kept, f"{len(updates)}", rule)
    return updates.detach() if len(kept) == len(updates) else updates.detach()[kept]


def check_any(finite: Sized, among: str, rule: str) -> None:
    """Raise DivergedError if there is no finite row among those that the rule has got."""
    if not len(finite):
        raise DivergedError(f"{rule} needs at least one update without NaN and inf, got none among {among}.")


def among(gram: Float64[Tensor, "n n"], rows: Int64[Tensor, " m"]) -> Float64[Tensor, "m m"]:
    """Take some rows, ascending, and the same columns; the matrix itself, not a copy, where these are all.

    >>> import torch
    >>> among(torch.tensor([[1.0, 2.0], [2.0, 4.0]]).double(), torch.tensor([1]))
    tensor([[4.]], dtype=torch.float64)
    """
    return gram if len(rows) == len(gram) else gram[rows][:, rows]
