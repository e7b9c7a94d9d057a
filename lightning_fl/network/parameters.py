"""A model's parameters as one flat vector."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call


def flatten(tensors: Iterable[Tensor]) -> Float[Tensor, " d"]:
    """Concatenate tensors into one flat vector."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def unflatten(vector: Float[Tensor, "*batch d"], like: Sequence[Tensor]) -> list[Tensor]:
    """Cut a flat vector (or a batch of them) into views shaped like the given tensors."""
    parts = vector.split([tensor.numel() for tensor in like], dim=-1)
    return [part.view((*vector.shape[:-1], *tensor.shape)) for part, tensor in zip(parts, like, strict=True)]


class _Inside(nn.Module):
    def __init__(self, model: nn.Module, function: Callable[..., Any]):
        super().__init__()
        self.model, self.function = model, function

    def forward(self, *arguments: Any) -> Any:
        return self.function(self.model, *arguments)


def call_at(parameters: Mapping[str, Tensor], function: Callable[..., Any], model: nn.Module, *arguments: Any) -> Any:
    """Call ``function(model, *arguments)`` while the model has other parameters.

    A loss that reads them and a backward pass that computes something again see these, too.
    """
    named = {f"model.{name}": value for name, value in parameters.items()}
    return functional_call(_Inside(model, function), named, arguments)


@torch.no_grad()
def nudge(model: nn.Module, draw: torch.Generator) -> None:
    """Move every trained parameter to a neighbouring number of its type, up or down as drawn.

    >>> layer = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.ones_(layer.weight)
    >>> nudge(layer, torch.Generator().manual_seed(0))
    >>> layer.weight.item() - 1  # 2^-23, a unit in the last place from 1 upwards
    1.1920928955078125e-07
    """
    for parameter in model.parameters():
        if parameter.requires_grad:
            up = torch.rand(parameter.shape, generator=draw).to(parameter) < 0.5
            towards = torch.full_like(parameter, inf).where(up, -inf)
            parameter.copy_(parameter.nextafter(towards))


def trainable(model: nn.Module) -> dict[str, Tensor]:
    """The parameters that clients train and upload, by name, detached."""
    return {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}
