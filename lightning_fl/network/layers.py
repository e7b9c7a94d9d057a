"""Layers of a model: replaced by others, or evaluated for a while."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import nn


def replaced(model: nn.Module, kind: type[nn.Module], make: Callable[..., nn.Module]) -> nn.Module:
    """Replace every layer of a kind inside a model, in place; one that stands in several places once.

    Args:
        model: The model.
        kind: The layers' class.
        make: Makes what stands in a layer's place; it may be the layer.

    Returns:
        The model, or what stands in its place.

    >>> norm = nn.BatchNorm1d(3)
    >>> replaced(nn.Sequential(norm, norm), nn.BatchNorm1d, lambda layer: nn.Identity())
    Sequential(
      (0): Identity()
      (1): Identity()
    )
    """
    if isinstance(model, kind):
        return make(model)
    made: dict[nn.Module, nn.Module] = {}
    for part in [*model.modules()]:
        for name, child in part._modules.items():
            if isinstance(child, kind):
                made[child] = made[child] if child in made else make(child)
                setattr(part, name, made[child])
    return model


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode; after it each layer is in the mode in which it was."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
