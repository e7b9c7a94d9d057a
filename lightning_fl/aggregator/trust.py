"""How far a rule trusts clients whose updates it has also scaled."""

from jaxtyping import Float
from torch import Tensor


def equal_shares(weights: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Trust all rows of positive weight the same, whatever length was undone.

    >>> import torch
    >>> equal_shares(torch.tensor([0.5, 0.0, 0.1]))
    tensor([0.5000, 0.0000, 0.5000])
    """
    return (weights > 0).to(weights) / (weights > 0).sum().clamp(min=1)
