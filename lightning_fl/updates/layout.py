"""Which columns of an update belong to which tensor of the model."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from jaxtyping import Int64
from torch import Tensor

from lightning_fl.updates.columns import Layer, Layout


def layout_of(parameters: Mapping[str, Tensor]) -> Layout:
    """Lay trained tensors side by side, as updates do.

    >>> layout_of({"weight": torch.zeros(2, 3), "bias": torch.zeros(2)})[1]
    Layer(name='bias', start=6, stop=8, dimensions=1)
    """
    layers, start = [], 0
    for name, value in parameters.items():
        layers.append(Layer(name, start, start + value.numel(), value.ndim))
        start += value.numel()
    return tuple(layers)


def owners(layout: Layout, device: torch.device) -> Int64[Tensor, " d"]:
    """Number each column by its tensor."""
    sizes = torch.tensor([layer.size for layer in layout], device=device)
    return torch.arange(len(layout), device=device).repeat_interleave(sizes)


def columns_of(layers: Sequence[Layer], device: torch.device) -> Int64[Tensor, " k"] | slice:
    """The columns of some tensors, in order; a slice where they are neighbours."""
    if all(a.stop == b.start for a, b in pairwise(layers)):
        return slice(layers[0].start, layers[-1].stop)
    return torch.cat([torch.arange(layer.start, layer.stop, device=device) for layer in layers])
