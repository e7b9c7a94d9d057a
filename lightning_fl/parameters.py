"""A model's parameters as one flat vector."""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn


def flatten(tensors: Iterable[Tensor]) -> Float[Tensor, " d"]:
    """Concatenate tensors into one flat vector."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def unflatten(vector: Float[Tensor, "*batch d"], like: Sequence[Tensor]) -> list[Tensor]:
    """Cut a flat vector (or a batch of them) into views shaped like the given tensors."""
    parts = vector.split([tensor.numel() for tensor in like], dim=-1)
    return [part.view((*vector.shape[:-1], *tensor.shape)) for part, tensor in zip(parts, like, strict=True)]


def trainable(model: nn.Module) -> dict[str, Tensor]:
    """The parameters that clients train and upload, by name, detached."""
    return {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}
