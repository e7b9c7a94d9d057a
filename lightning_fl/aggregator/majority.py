"""The middle of more than half of the weight, as an origin that fewer than half cannot move far."""

import torch
from jaxtyping import Float64
from torch import Tensor

from lightning_fl.updates.products import by_parts, equal_rows, merged, squared_distances

_ROUNDING = 1e-12  # half of the weight, added up, may come out above 1/2 by less


def centre_on_majority(
    gram: Float64[Tensor, "n n"], weights: Float64[Tensor, " n"]
) -> tuple[Float64[Tensor, "n n"], Float64[Tensor, " n"], float]:
    """Move the origin to the row with the smallest ball around it that holds more than half of the weight.

    Where more than half of the weight is honest, that radius is at most the honest rows' diameter, whatever the others
    send.  Rows whose distance is rounding become one.

    Args:
        gram: Finite inner products.
        weights: Positive, with sum 1.

    Returns:
        Inner products about that row, squared distances to it, and the radius.
    """
    gram = merged(gram, equal_rows(gram, gram.diagonal().clamp(min=0)))
    distances = squared_distances(gram)
    radii = by_parts(lambda rows: _radii(distances[rows], weights), torch.empty_like(weights))
    row = int(radii.argmin())
    distances = distances[row].clone()  # frees the others
    return move_origin(gram.clone(), row), distances, radii[row].item()


def _radii(distances: Tensor, weights: Tensor) -> Tensor:
    """For each row the least distance within which more than half of the weight lies."""
    order = distances.argsort(dim=1, stable=True)
    majority = (weights[order].cumsum(1) > 0.5 + _ROUNDING).to(torch.uint8).argmax(1, keepdim=True)
    return distances.gather(1, order.gather(1, majority)).flatten().sqrt()


def move_origin(gram: Float64[Tensor, "n n"], row: int) -> Float64[Tensor, "n n"]:
    """Move the origin of inner products to a row, in place."""
    across, down, square = gram[row].clone(), gram[:, row : row + 1].clone(), gram[row, row].clone()
    return gram.sub_(across).sub_(down).add_(square)
