"""What can be asked of a matrix of rows, one update in each, that may hold NaN and inf."""

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from lightning_fl.errors import SettingError

# Powers added up in float32 before float64 takes over.
_POWERS = 1024
# Entries whose mean and deviation are taken at a time: 2^17 for each thread (512 KB) stay in its cache between the two.
_SPREAD_CPU, _SPREAD_GPU = 2**17, 2**26
# Entries of some rows copied at a time: 256 MiB in float32.
_COPIED = 2**26


def check_rows(rows: object, name: str) -> None:
    """Check that rows are what every rule takes.

    Args:
        rows: What should be a tensor, a floating-point matrix of at least one row and one column.
        name: What to call it in the error.

    Raises:
        SettingError: If they are not.
    """
    if not isinstance(rows, Tensor):
        raise SettingError(f"{name} must be a tensor, got {type(rows).__name__}; convert with torch.as_tensor({name}).")
    if rows.ndim != 2 or 0 in rows.shape:
        raise SettingError(
            f"{name} must be a matrix (n, d) with n >= 1 and d >= 1, got shape {tuple(rows.shape)}; "
            f"stack one flat vector per row."
        )
    if not rows.dtype.is_floating_point:
        raise SettingError(f"{name} must be floating point, got {rows.dtype}; convert with {name}.float().")


def check_shape(what: str, found: object, *shape: int) -> None:
    """Check what a part of a run, maybe one of a user's own, has computed.

    Args:
        what: What it is, for the error.
        found: What should be a tensor of that shape.
        shape: The shape.

    Raises:
        SettingError: If it is not.
    """
    if not isinstance(found, Tensor) or found.shape != shape:
        got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise SettingError(f"{what} must be a tensor of shape {shape}, got {got}.")


def mean_and_squares(rows: Float[Tensor, "n d"]) -> tuple[Float[Tensor, " d"], Float[Tensor, " d"]]:
    """Compute each column's mean, and its sum of squared differences from that, reading the rows once.

    >>> mean_and_squares(torch.tensor([[1.0, 2.0], [3.0, 2.0], [5.0, 8.0]]))
    (tensor([3., 4.]), tensor([ 8., 24.]))
    """
    rows = rows.detach()
    mean, squares = rows.new_empty(2, rows.shape[1])
    entries = _SPREAD_CPU * torch.get_num_threads() if rows.device.type == "cpu" else _SPREAD_GPU
    width = max(1, entries // len(rows))
    for columns, centre, total in zip(rows.split(width, dim=1), mean.split(width), squares.split(width), strict=True):
        torch.mean(columns, 0, out=centre)
        torch.sum((columns - centre).square_(), 0, out=total)
    return mean, squares


def broken_rows(rows: Float[Tensor, "n d"]) -> Bool[Tensor, " n"]:
    """Find the rows that hold NaN or inf, without a matrix of n x d answers.

    >>> broken_rows(torch.tensor([[1.0, 2.0], [3e38, 3e38], [0.0, torch.nan]]))
    tensor([False, False,  True])
    """
    if rows.device.type == "cpu":
        return torch.tensor([not fine for fine in which_finite(rows)])
    return ~torch.linalg.vector_norm(rows, torch.inf, dim=1).isfinite()  # the largest entry: nobody waits


def which_finite(rows: Float[Tensor, "n d"]) -> list[bool]:
    """Tell for each row whether it holds only finite numbers, looking at a GPU once."""
    if rows.device.type != "cpu":
        return (~broken_rows(rows)).tolist()
    finite = rows.sum(1).isfinite().tolist()  # one cheap pass: a finite sum has finite terms
    return [fine or bool(rows[i].isfinite().all()) for i, fine in enumerate(finite)]  # or the sum overflowed


def weighted_sum(rows: Float[Tensor, "n d"], weights: Float[Tensor, " n"]) -> Float[Tensor, " d"]:
    """Compute sum_i weights_i rows_i."""
    return (weights[None] @ rows)[0]  # a matrix product has more threads than one with a vector


def combine_rows(rows: Float[Tensor, "n d"], weights: Float[Tensor, " n"]) -> Float[Tensor, " d"]:
    """Compute sum_i weights_i rows_i; a row of weight 0 has no influence, whatever it holds.

    Args:
        rows: The rows, on any device.
        weights: Weights of the rows' type, on the CPU, lest a GPU be waited for.
    """
    used = weights.nonzero().flatten()
    if len(used) == len(rows):
        return weighted_sum(rows, weights.to(rows, non_blocking=True))
    if rows.device.type == "cpu":
        combined = weighted_sum(rows, weights)
        if combined.sum().isfinite():  # 0 * inf is NaN: leave those rows out
            return combined
    some, width = weights[used].to(rows, non_blocking=True), max(1, _COPIED // len(rows))
    used = used.to(rows.device, non_blocking=True)
    return torch.cat([some @ columns[used] for columns in rows.split(width, dim=1)])


def as_shares(data_weights: Float[Tensor, " n"] | None, n: int) -> Float64[Tensor, " n"]:
    """Divide n weights by their sum, on the CPU; None: equal ones.

    Raises:
        SettingError: If they are not n finite numbers >= 0 with a positive sum.
    """
    if data_weights is None:
        data_weights = torch.ones(n)
    weights = data_weights.cpu().double()
    if weights.shape != (n,) or not (weights.isfinite().all() and (weights >= 0).all() and weights.sum() > 0):
        raise SettingError(
            f"weights must be {n} finite numbers >= 0 with a positive sum, one for each row of updates, "
            f"got {tuple(weights.shape)}: {weights.tolist()[:5]}..."
        )
    return weights / weights.sum()


def row_norms(rows: Float[Tensor, "n d"], p: float = 2.0) -> Float64[Tensor, " n"]:
    """Compute ||x_i||_p at the speed of float32, to about 1e-6, and bring them to the CPU.

    A row whose powers overflow or vanish in float32 is computed again in float64, so a norm is NaN or inf only where
    the row holds such a number (or, of float64 rows, has p-th powers beyond float64).

    Args:
        rows: One vector per row.
        p: 1, 2 or inf.

    Returns:
        One norm per row.

    >>> row_norms(torch.tensor([[3.0, 4.0], [3e30, 4e30]]))
    tensor([5.0000e+00, 5.0000e+30], dtype=torch.float64)
    """
    wide = torch.promote_types(rows.dtype, torch.float32)
    blocks = (rows.shape[1] - 1) // _POWERS
    head, tail = rows.tensor_split([blocks * _POWERS], dim=1)
    parts = torch.linalg.vector_norm(head.unflatten(1, (blocks, _POWERS)), p, dim=2, dtype=wide)
    rest = torch.linalg.vector_norm(tail, p, dim=1, keepdim=True, dtype=wide)
    norms = torch.linalg.vector_norm(torch.cat([parts, rest], dim=1), p, dim=1, dtype=torch.float64).cpu()
    doubtful = ~((norms > 1e-12) & norms.isfinite())
    if doubtful.any():
        again = doubtful.nonzero().flatten()
        norms[again] = torch.linalg.vector_norm(rows[again], p, dim=1, dtype=torch.float64).cpu()
    return norms
