"""Layers that compute all clients' samples in one batch and give each client its own weights' gradient."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

# Devices whose convolutions are fastest on one client's images at a time.
_SMALL_BATCHES = ("cpu",)


class UnsupportedError(Exception):
    """The model does something that is not known to treat each sample by itself."""


@dataclass(frozen=True)
class Run:
    """Neighbouring clients with the same number of samples."""

    clients: slice
    samples: slice
    size: int

    @property
    def length(self) -> int:
        """Number of their samples."""
        return self.samples.stop - self.samples.start

    def stack(self, x: Tensor) -> Tensor:
        """Take their part of (batch, ..., features), as (clients, samples and all between, features).

        Of contiguous memory it is a view.
        """
        return x[self.samples].reshape(self.clients.stop - self.clients.start, -1, x.shape[-1])


class Slot:
    """One parameter's place in the clients' gradients and, where they have weights of their own, in those."""

    def __init__(self, shape: torch.Size, gradients: Tensor, weights: Tensor | None):
        self.shape = shape
        self.gradients = gradients.view(-1, *shape)
        self.weights = None if weights is None else weights.reshape(-1, *shape)
        self.filled = False

    def put(self, clients: slice, function: Callable[..., Tensor], *arguments: Any) -> None:
        """Write what a function gives for some clients, or add it to what an earlier use of the parameter gave."""
        place = self.gradients[clients]
        if self.filled:
            place += function(*arguments)
        else:
            function(*arguments, out=place)


class Layout:
    """Where each client's samples are in the batch, and where its gradients go.

    Args:
        sizes: Samples of each client.
        parameters: What clients train: the very tensors that the model computes with.
        gradients: (h, d) matrix to fill.
        weights: (h, d) weights of each client.  None: the model's.
    """

    def __init__(self, sizes: Sequence[int], parameters: Sequence[Tensor], gradients: Tensor, weights: Tensor | None):
        self.sizes = list(sizes)
        self.n = sum(sizes)
        self.runs = list(_runs(sizes))
        self.shared = weights is None
        lengths = [parameter.numel() for parameter in parameters]
        theirs = [None] * len(lengths) if weights is None else weights.split(lengths, dim=1)
        self._slots = {
            id(parameter): Slot(parameter.shape, columns, own)
            for parameter, columns, own in zip(parameters, gradients.split(lengths, dim=1), theirs, strict=True)
        }

    def trains(self, tensor: object) -> bool:
        """Tell whether this is a trained parameter."""
        return id(tensor) in self._slots

    def slot(self, parameter: Tensor | None) -> Slot | None:
        """Find where a layer's weight or bias belongs; None if it is not trained."""
        return self._slots.get(id(parameter))

    def owners(self, device: torch.device) -> Tensor:
        """The number of each sample's client."""
        sizes = torch.tensor(self.sizes, device=device)
        return torch.arange(len(sizes), device=device).repeat_interleave(sizes, output_size=self.n)

    def add(self, slot: Slot | None, values: Tensor) -> None:
        """Put the sums over each client's samples of (batch, ...) values."""
        if slot is not None:
            for run in self.runs:
                stacked = values[run.samples].reshape(-1, run.size, *slot.shape)
                slot.put(run.clients, torch.sum, stacked, 1)
            slot.filled = True

    def finish(self) -> None:
        """Set the gradients of what the model did not use to zero."""
        for slot in self._slots.values():
            if not slot.filled:
                slot.gradients.zero_()


def _runs(sizes: Sequence[int]) -> Iterator[Run]:
    client = sample = 0
    for size, group in groupby(sizes):
        count = len(list(group))
        yield Run(slice(client, client + count), slice(sample, sample + count * size), size)
        client, sample = client + count, sample + count * size


class _Linear(torch.autograd.Function):
    """x W^T + b for x (batch, ..., features)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layout: Layout) -> Tensor:
        slot, bias_slot = ctx.slots = layout.slot(weight), layout.slot(bias)
        ctx.layout = layout
        ctx.save_for_backward(x, weight)
        own = None if slot is None else slot.weights
        own_bias = None if bias_slot is None else bias_slot.weights
        if own is None and own_bias is None:
            return F.linear(x, weight, bias)
        y = F.linear(x, weight) if own is None else _products(layout, x, own.transpose(1, 2))
        if own_bias is not None:
            for run in layout.runs:
                run.stack(y).add_(own_bias[run.clients, None])
        elif bias is not None:
            y += bias
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), (slot, bias_slot), layout = ctx.saved_tensors, ctx.slots, ctx.layout
        if slot is not None:
            for run in layout.runs:
                slot.put(run.clients, torch.bmm, run.stack(g).transpose(1, 2), run.stack(x))
            slot.filled = True
        layout.add(bias_slot, g.flatten(1, -2).sum(1) if g.ndim > 2 else g)
        if not ctx.needs_input_grad[0]:
            return None, None, None, None
        if slot is None or slot.weights is None:
            return g @ weight, None, None, None
        return _products(layout, g, slot.weights), None, None, None


class _Affine(torch.autograd.Function):
    """x w + b by elements, which is what a normalisation does in the end; ``place`` aligns (batch, ...) w with x."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layout: Layout, place: Callable[[Tensor], Tensor]
    ) -> Tensor:
        def each(parameter: Tensor) -> Tensor:
            slot = layout.slot(parameter)
            if slot is None or slot.weights is None:
                return place(parameter[None])
            return place(slot.weights[layout.owners(x.device)])

        ctx.layout, ctx.slots = layout, (layout.slot(weight), layout.slot(bias))
        scale = each(weight)
        ctx.save_for_backward(x, scale)
        return x * scale if bias is None else x * scale + each(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        (x, scale), (slot, bias_slot) = ctx.saved_tensors, ctx.slots
        shape = (len(x), *scale.shape[1:])
        if slot is not None:
            ctx.layout.add(slot, (g * x).sum_to_size(shape))
        if bias_slot is not None:
            ctx.layout.add(bias_slot, g.sum_to_size(shape))
        return g * scale if ctx.needs_input_grad[0] else None, None, None, None, None


class _Embedding(torch.autograd.Function):
    """Rows of a table, by number."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, weight: Tensor, padding: int | None, layout: Layout) -> Tensor:
        slot = layout.slot(weight)
        assert slot is not None  # `embedding` asks
        owners = layout.owners(tokens.device).view(-1, *[1] * (tokens.ndim - 1))
        ctx.slot, ctx.padding = slot, padding
        ctx.save_for_backward(owners, tokens)
        return F.embedding(tokens, weight) if slot.weights is None else slot.weights[owners, tokens]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[None, ...]:
        (owners, tokens), slot = ctx.saved_tensors, ctx.slot
        if ctx.padding is not None:
            g = g.masked_fill((tokens == ctx.padding)[..., None], 0)
        if not slot.filled:
            slot.gradients.zero_()
        slot.gradients.index_put_((owners, tokens), g, accumulate=True)
        slot.filled = True
        return None, None, None, None


class _Convolution(torch.autograd.Function):
    """A convolution; client by client where a processor wants small batches or clients have weights of their own."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layout: Layout, settings: tuple[Any, ...]
    ) -> Tensor:
        ctx.layout, ctx.slots, ctx.settings = layout, (layout.slot(weight), layout.slot(bias)), settings
        ctx.save_for_backward(x, weight)
        if layout.shared and x.device.type not in _SMALL_BATCHES:
            return torch.convolution(x, weight, bias, *settings)
        kernels, offsets = _by_client(ctx.slots[0], weight, layout), _by_client(ctx.slots[1], bias, layout)
        parts = zip(x.split(layout.sizes), kernels, offsets, strict=True)
        return torch.cat([torch.convolution(part, kernel, offset, *settings) for part, kernel, offset in parts])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), (slot, bias_slot), layout, settings = ctx.saved_tensors, ctx.slots, ctx.layout, ctx.settings
        layout.add(bias_slot, g.flatten(2).sum(2))

        def gradients(g: Tensor, x: Tensor, kernel: Tensor, inwards: bool, kernels: bool) -> tuple[Any, ...]:
            return torch.ops.aten.convolution_backward(g, x, kernel, None, *settings, (inwards, kernels, False))

        inwards: Tensor | None = None
        found: list[Tensor] = []
        if layout.shared and x.device.type not in _SMALL_BATCHES:
            if ctx.needs_input_grad[0]:
                inwards = gradients(g, x, weight, True, False)[0]
            for run in layout.runs if slot is not None else []:
                stacked = [part[run.samples].unflatten(0, (-1, run.size)) for part in (g, x)]
                found.append(torch.vmap(lambda g, x: gradients(g, x, weight, False, True)[1])(*stacked))
        else:
            parts = zip(g.split(layout.sizes), x.split(layout.sizes), _by_client(slot, weight, layout), strict=True)
            pairs = [gradients(*part, ctx.needs_input_grad[0], slot is not None)[:2] for part in parts]
            inwards = torch.cat([pair[0] for pair in pairs]) if ctx.needs_input_grad[0] else None
            found = [torch.stack([pair[1] for pair in pairs])] if slot is not None else []
        if slot is not None:
            slot.put(slice(None), torch.cat, found)
            slot.filled = True
        return inwards, None, None, None, None


def _by_client(slot: Slot | None, parameter: Tensor | None, layout: Layout) -> Sequence[Any]:
    """A layer's weight or bias for each client."""
    if slot is None or slot.weights is None:
        return [parameter] * len(layout.sizes)
    return slot.weights.unbind()


def _products(layout: Layout, x: Tensor, matrices: Tensor) -> Tensor:
    """Each client's part of (batch, ..., features) by its own matrix."""
    y = x.new_empty(*x.shape[:-1], matrices.shape[-1])
    for run in layout.runs:
        torch.bmm(run.stack(x), matrices[run.clients], out=run.stack(y))
    return y


# The layers, with the arguments of torch's functions of these names.


def linear(layout: Layout, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply (batch, ..., features) inputs; see ``torch.nn.functional.linear``."""
    if input.ndim < 2:
        raise UnsupportedError("a linear map without a batch")
    result: Tensor = _Linear.apply(input, weight, bias, layout)
    return result


def convolution(
    layout: Layout,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve in one to three dimensions; see ``torch.nn.functional.conv2d``."""
    spatial = weight.ndim - 2
    stride = [stride] * spatial if isinstance(stride, int) else stride
    dilation = [dilation] * spatial if isinstance(dilation, int) else dilation
    if padding == "same":
        reach = [step * (size - 1) for step, size in zip(dilation, weight.shape[2:], strict=True)]
        padding = None if any(length % 2 for length in reach) else [length // 2 for length in reach]
    padding = 0 if padding == "valid" else padding
    padding = [padding] * spatial if isinstance(padding, int) else padding
    if padding is None or input.ndim != weight.ndim:
        raise UnsupportedError("an image without a batch, or padded more on one side")
    settings = (stride, padding, dilation, False, [0] * spatial, groups)
    result: Tensor = _Convolution.apply(input, weight, bias, layout, settings)
    return result


def embedding(
    layout: Layout,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Look up rows; see ``torch.nn.functional.embedding``."""
    if max_norm is not None or scale_grad_by_freq or sparse:
        raise UnsupportedError("an embedding that changes its weights, or counts words in the batch")
    if layout.slot(weight) is None:
        return F.embedding(input, weight)
    padding = None if padding_idx is None else padding_idx % len(weight)
    result: Tensor = _Embedding.apply(input, weight, padding, layout)
    return result


def layer_norm(
    layout: Layout,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise over the last dimensions; see ``torch.nn.functional.layer_norm``."""
    return _scaled(layout, input, F.layer_norm(input, normalized_shape, eps=eps), weight, bias, len(normalized_shape))


def rms_norm(
    layout: Layout,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Divide by the root mean square over the last dimensions; see ``torch.nn.functional.rms_norm``."""
    return _scaled(layout, input, F.rms_norm(input, normalized_shape, eps=eps), weight, None, len(normalized_shape))


def group_norm(
    layout: Layout,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise over groups of channels; see ``torch.nn.functional.group_norm``."""
    return _scaled(layout, input, F.group_norm(input, num_groups, eps=eps), weight, bias, None)


def _scaled(
    layout: Layout, x: Tensor, normal: Tensor, weight: Tensor | None, bias: Tensor | None, last: int | None
) -> Tensor:
    """Scale and shift what is normalised: by so many last dimensions; None: by the first after the samples'."""
    if x.ndim <= (last or 1):
        raise UnsupportedError("a normalisation over samples")
    if weight is None:
        if bias is not None:
            raise UnsupportedError("a normalisation with a bias alone")
        return normal

    def place(parameter: Tensor) -> Tensor:
        ones = [1] * (x.ndim - parameter.ndim)
        shape = (*parameter.shape[1:], *ones) if last is None else (*ones, *parameter.shape[1:])
        return parameter.view(len(parameter), *shape)

    result: Tensor = _Affine.apply(normal, weight, bias, layout, place)
    return result
