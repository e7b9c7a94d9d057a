"""Which columns of an update belong to which tensor of the model."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import torch
from jaxtyping import Int64
from torch import Tensor

from lightning_fl.updates.columns import Layer, Layout


def layout_of(parameters: Mapping[str, Tensor]) -> Layout:
    """Lay trained tensors side by side, as updates do.

    >>> layout_of({"weight": torch.zeros(2, 3), "bias": torch.zeros(2)})[1]
    Layer(name='bias', start=6, stop=8, dimensions=1)
    """
    return side_by_side([Layer(name, 0, value.numel(), value.ndim) for name, value in parameters.items()])


def side_by_side(layers: Sequence[Layer]) -> Layout:
    """Move some tensors next to each other.

    >>> side_by_side([Layer("fc.bias", 6, 8, 1), Layer("out.bias", 12, 13, 1)])[1]
    Layer(name='out.bias', start=2, stop=3, dimensions=1)
    """
    stops = [*accumulate(layer.size for layer in layers)]
    return tuple(replace(layer, start=stop - layer.size, stop=stop) for layer, stop in zip(layers, stops, strict=True))


def owners(layout: Layout, device: torch.device) -> Int64[Tensor, " d"]:
    """Number each column by its tensor."""
    sizes = torch.tensor([layer.size for layer in layout], device=device)
    return torch.arange(len(layout), device=device).repeat_interleave(sizes)


def columns_of(layers: Sequence[Layer], device: torch.device) -> Int64[Tensor, " k"] | slice:
    """The columns of some tensors, in order; a slice where they are neighbours."""
    if all(a.stop == b.start for a, b in pairwise(layers)):
        return slice(layers[0].start, layers[-1].stop)
    return torch.cat([torch.arange(layer.start, layer.stop, device=device) for layer in layers])
