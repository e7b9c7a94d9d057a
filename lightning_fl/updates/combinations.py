"""Inner products of combinations of rows, from those of the rows."""

import torch
import torch.nn.functional as F
from jaxtyping import Float64
from torch import Tensor

from lightning_fl.updates.products import SAME, Centred, bordered, merge_equal, middle_row


def inner(centred: Centred, a: Float64[Tensor, " n"], b: Float64[Tensor, " n"]) -> Float64[Tensor, ""]:
    """Compute <sum_i a_i x_i, sum_j b_j x_j>; NaN if a row that is not finite takes part."""
    gram, both, broken = _finite_part(centred.with_origin, _with_sum(torch.stack([a, b])))
    return (both[0] @ gram @ both[1]).masked_fill(broken.any(), torch.nan)


def squares_of(centred: Centred, matrix: Float64[Tensor, "m n"]) -> Float64[Tensor, " m"]:
    """Compute ||sum_j matrix_ij x_j||^2 for each i; NaN if a row that is not finite takes part."""
    gram, rows, broken = _finite_part(centred.with_origin, _with_sum(matrix))
    return (rows @ gram).mul_(rows).sum(1).clamp_(min=0).masked_fill_(broken, torch.nan)


def with_row(centred: Centred, weights: Float64[Tensor, " n"]) -> Centred:
    """Add the row sum_j a_j x_j, which becomes a row that it is near but for rounding.

    Args:
        centred: Inner products of the x_j.
        weights: a; where one is 0, the row may hold anything.
    """
    used = weights.nonzero().flatten()
    a, beyond = weights[used], weights.sum() - 1  # sum_j a_j x_j - r = sum_j a_j (x_j - r) + beyond r
    products = torch.cat([centred.gram[:, used], centred.offset[used, None].T]) @ a
    products += beyond * torch.cat([centred.offset, centred.square[None]])
    length = products[used] @ a + beyond * products[-1]
    reach = (a.abs() @ centred.scale[used].sqrt() + beyond.abs() * centred.square.sqrt()).square()
    length = length.clamp(min=0) + SAME / 4 * reach
    lengths = centred.gram.diagonal()
    near = lengths + length - 2 * products[:-1] <= 2 * SAME * torch.minimum(centred.scale, reach)
    if near.any():
        return centred[torch.cat([torch.arange(len(near)), near.to(torch.uint8).argmax(0, keepdim=True)])]
    return Centred(
        bordered(centred.gram, products[:-1], length),
        torch.cat([centred.offset, products[-1:]]),
        centred.square,
        torch.cat([centred.scale, reach[None]]),
    )


def mixed_centred(centred: Centred, matrix: Float64[Tensor, "m n"], n_middle: int) -> Centred:
    """Mix rows, y_i = sum_j matrix_ij x_j.  A row that a non-finite one has part in is not finite.

    Args:
        centred: Inner products of the x_j.
        matrix: Coefficients.
        n_middle: Among how many of the first rows a new origin is chosen, since the y_i may lie much closer
            together than the x_j.
    """
    gram, rows, broken = _finite_part(centred.with_origin, _with_sum(matrix))
    lengths = gram.diagonal().clone()
    lengths[:-1] = centred.scale.nan_to_num(nan=0, posinf=0)

    def about(origin: Tensor) -> tuple[Tensor, Tensor]:
        # Rounding is charged to the row: one in which huge ones cancel is never near others.
        apart = rows - origin
        found, reach = apart @ gram @ apart.T, (apart.abs() @ lengths.sqrt()).square()
        found = (found + found.T) / 2 + (SAME / 4 * reach).diag()
        return found.masked_fill(broken | broken[:, None], torch.nan), reach.masked_fill(broken, torch.nan)

    found, _ = about(F.pad(rows.new_zeros(rows.shape[1] - 1), (0, 1), value=1))  # r itself
    origin = rows[middle_row(found.diagonal(), found.__getitem__, n_middle)]
    found, reach = about(origin)
    along = gram @ origin
    return merge_equal(found, ((rows - origin) @ along).masked_fill(broken, torch.nan), origin @ along, reach)


def mixed_gram(gram: Float64[Tensor, "n n"], matrix: Float64[Tensor, "m n"]) -> Float64[Tensor, "m m"]:
    """Compute the inner products of the rows y_i = sum_j matrix_ij x_j; one with a share of a non-finite row is NaN."""
    gram, matrix, broken = _finite_part(gram, matrix)
    mixed = matrix @ gram @ matrix.T
    mixed = (mixed + mixed.T) / 2
    mixed.diagonal().clamp_(min=0)  # rows that cancel leave rounding
    return mixed.masked_fill(broken | broken[:, None], torch.nan)


def gram_with_row(gram: Float64[Tensor, "n n"], weights: Float64[Tensor, " n"]) -> Float64[Tensor, "m m"]:
    """Add the row sum_j a_j x_j to a Gram matrix about any origin; where a_j is 0, row j may hold anything."""
    used = weights.nonzero().flatten()
    products = gram[:, used] @ weights[used]
    return bordered(gram, products, (products[used] @ weights[used]).clamp(min=0))


def _with_sum(matrix: Tensor) -> Tensor:
    """Coefficients of the x_i, followed by that of r in sum_j a_j (x_j - r) + (sum_j a_j) r."""
    return torch.cat([matrix, matrix.sum(1, keepdim=True)], dim=1)


def _finite_part(gram: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Inner products and coefficients without the rows that are not finite, and which mixed rows these have part in."""
    finite = gram.diagonal().isfinite()
    known = gram.masked_fill(~(finite & finite[:, None]), 0)
    return known, matrix.masked_fill(~finite, 0), (matrix.masked_fill(finite, 0) != 0).any(1)
