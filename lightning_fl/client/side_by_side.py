"""All clients' gradients by one forward and one backward pass over their samples, side by side in one batch.

``vmap`` pads clients to one size and pays for its transformation again for every chunk; a loop pays for autograd again
for every client.  But a layer's gradient with respect to its weights is a sum over samples, so where the samples of all
clients lie in one batch, each client's gradient is the same sum over its own part of the batch: one batched matrix
product per linear layer, whose result goes where it belongs in the (h, d) matrix.  A CPU convolves small batches
fastest, so there a convolution takes one client's images at a time.  Clients may also have weights of their own.

The model runs as it is, watched by a mode that sees every torch function.  It stops (`UnsupportedError`) at whatever is
not known to keep one sample per row of every tensor, such as statistics over the batch, and at whatever uses a trained
parameter other than once, as weight or bias of such a layer.  What a model makes of the mere number of samples, such as
a division by ``len(x)``, shows beside plain autograd on two small clients (`keeps_apart`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from lightning_fl.loss.base import sample_losses
from lightning_fl.network.dropout import KeyedDropout, keys_in_order, sample_keys
from lightning_fl.network.facts import once, tensors_in
from lightning_fl.network.images import arranged
from lightning_fl.network.parameters import flatten, trainable
from lightning_fl.samples import ClientBatch, Samples

# Relative distance between two gradients that is more than rounding.
_TOLERANCE = 1e-3


class UnsupportedError(Exception):
    """The model does something that is not known to treat each sample by itself."""


class _Run(NamedTuple):
    """Neighbouring clients with the same number of samples."""

    clients: slice
    samples: slice
    size: int

    def stack(self, x: Tensor) -> Tensor:
        """Take their part of (batch, ..., features), as (clients, samples and all between, features)."""
        return x[self.samples].reshape(self.clients.stop - self.clients.start, -1, x.shape[-1])


def _runs(sizes: Sequence[int]) -> Iterator[_Run]:
    client = sample = 0
    for size, group in groupby(sizes):
        count = len(list(group))
        yield _Run(slice(client, client + count), slice(sample, sample + count * size), size)
        client, sample = client + count, sample + count * size


class _Place:
    """One parameter's place in the clients' gradients and, where they have weights of their own, in those."""

    def __init__(self, shape: torch.Size, gradients: Tensor, weights: Tensor | None):
        self.gradients = gradients.view(-1, *shape)
        self.weights = None if weights is None else weights.reshape(-1, *shape)
        self.used = self.filled = False


class SideBySide(TorchFunctionMode):
    """Inside it layers put each client's gradients where they belong, and nothing runs that is not known.

    A tensor is known to hold one sample per row if it is the input, or came out of a function that keeps samples apart.

    Args:
        model: The model.
        inputs: The batch.
        sizes: Samples of each client.
        gradients: (h, d) matrix to fill.
        weights: (h, d) weights of each client.  None: the model's.

    Raises:
        UnsupportedError: At anything else.
    """

    def __init__(
        self, model: nn.Module, inputs: Tensor, sizes: Sequence[int], gradients: Tensor, weights: Tensor | None
    ):
        super().__init__()
        self.sizes, self.runs = list(sizes), list(_runs(sizes))
        parameters = [p for p in model.parameters() if p.requires_grad]
        lengths = [parameter.numel() for parameter in parameters]
        theirs = [None] * len(lengths) if weights is None else weights.split(lengths, dim=1)
        self._places = {
            id(parameter): _Place(parameter.shape, *columns)
            for parameter, *columns in zip(parameters, gradients.split(lengths, dim=1), theirs, strict=True)
        }
        self._mark = object()
        self._keep(inputs)

    def knows(self, tensor: object) -> bool:
        """Whether a tensor holds one sample per row."""
        return getattr(tensor, "_samples_apart", None) is self._mark

    def _keep(self, tensor: Tensor) -> None:
        tensor._samples_apart = self._mark  # type: ignore[attr-defined]

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Compute layers in our way, and the rest as it is if it keeps samples apart."""
        kwargs = kwargs or {}
        if func in _FACTS:
            return func(*args, **kwargs)
        tensors, result = list(tensors_in([*args, *kwargs.values()])), None
        if func in _LAYERS and tensors and self.knows(tensors[0]) and all(map(self._is_weight, tensors[1:])):
            result = _LAYERS[func](self, *args, **kwargs)
        elif func in _APART and all(map(self.knows, tensors)) and len({tensor.ndim for tensor in tensors}) == 1:
            result = func(*args, **kwargs)
        if not isinstance(result, Tensor) or not result.ndim or len(result) != sum(self.sizes):
            raise UnsupportedError(str(func))
        self._keep(result)
        return result

    def _is_weight(self, tensor: Tensor) -> bool:
        """Whether a tensor is trained, or has nothing to do with the samples or with what is trained."""
        return id(tensor) in self._places or not (self.knows(tensor) or tensor.requires_grad)

    def place(self, parameter: Tensor | None) -> _Place | None:
        """Find where a layer's weight or bias belongs; None if it is not trained."""
        place = self._places.get(id(parameter))
        if place is not None:
            if place.used:
                raise UnsupportedError("a parameter that is used twice")
            place.used = True
        return place

    def add_up(self, place: _Place | None, values: Tensor) -> None:
        """Put the sums over each client's samples of (batch, features) values, which are a bias's gradient."""
        if place is not None:
            for run in self.runs:
                torch.sum(run.stack(values), 1, out=place.gradients[run.clients])
            place.filled = True

    def finish(self) -> None:
        """Set the gradients of what the outputs do not depend on to zero."""
        for place in self._places.values():
            if not place.filled:
                place.gradients.zero_()


class _Linear(torch.autograd.Function):
    """x W^T + b for x (batch, ..., features)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, mode: SideBySide) -> Tensor:
        ctx.mode, (place, bias_place) = mode, (mode.place(weight), mode.place(bias))
        ctx.places = place, bias_place
        ctx.save_for_backward(x, weight)
        own = None if place is None else place.weights
        own_bias = None if bias_place is None else bias_place.weights
        if own is None and own_bias is None:
            return F.linear(x, weight, bias)
        y = F.linear(x, weight) if own is None else _products(mode, x, own.transpose(1, 2))
        if own_bias is not None:
            for run in mode.runs:
                run.stack(y).add_(own_bias[run.clients, None])
        elif bias is not None:
            y += bias
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), mode, (place, bias_place) = ctx.saved_tensors, ctx.mode, ctx.places
        if place is not None:
            for run in mode.runs:
                torch.bmm(run.stack(g).transpose(1, 2), run.stack(x), out=place.gradients[run.clients])
            place.filled = True
        mode.add_up(bias_place, g.flatten(1, -2).sum(1) if g.ndim > 2 else g)
        if not ctx.needs_input_grad[0]:
            return None, None, None, None
        if place is None or place.weights is None:
            return g @ weight, None, None, None
        return _products(mode, g, place.weights), None, None, None


def _products(mode: SideBySide, x: Tensor, matrices: Tensor) -> Tensor:
    """Each client's part of (batch, ..., features) by its own matrix."""
    y = x.new_empty(*x.shape[:-1], matrices.shape[-1])
    for run in mode.runs:
        torch.bmm(run.stack(x), matrices[run.clients], out=run.stack(y))
    return y


class _Convolution(torch.autograd.Function):
    """A convolution, client by client."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, mode: SideBySide, settings: tuple[Any, ...]
    ) -> Tensor:
        ctx.mode, ctx.places, ctx.settings = mode, (mode.place(weight), mode.place(bias)), settings
        ctx.save_for_backward(x, weight)
        kernels, offsets = _by_client(ctx.places[0], weight, mode), _by_client(ctx.places[1], bias, mode)
        parts = zip(x.split(mode.sizes), kernels, offsets, strict=True)
        return torch.cat([torch.convolution(part, kernel, offset, *settings) for part, kernel, offset in parts])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), mode, (place, bias_place) = ctx.saved_tensors, ctx.mode, ctx.places
        wanted = (ctx.needs_input_grad[0], place is not None, False)
        parts = zip(g.split(mode.sizes), x.split(mode.sizes), _by_client(place, weight, mode), strict=True)
        backward = torch.ops.aten.convolution_backward
        found = [backward(*part, None, *ctx.settings, wanted) for part in parts]
        if place is not None:
            torch.stack([kernel for _, kernel, _ in found], out=place.gradients)
            place.filled = True
        mode.add_up(bias_place, g.flatten(2).sum(2))
        return torch.cat([inwards for inwards, _, _ in found]) if wanted[0] else None, None, None, None, None


def _by_client(place: _Place | None, parameter: Tensor | None, mode: SideBySide) -> Sequence[Any]:
    """A layer's weight or bias for each client."""
    if place is None or place.weights is None:
        return [parameter] * len(mode.sizes)
    return place.weights.unbind()


# The layers, with the arguments of torch's functions of these names.


def _linear(mode: SideBySide, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if input.ndim < 2:
        raise UnsupportedError("a linear map without a batch")
    result: Tensor = _Linear.apply(input, weight, bias, mode)
    return result


def _conv2d(
    mode: SideBySide,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
) -> Tensor:
    if input.ndim != 4 or input.device.type != "cpu" or isinstance(padding, str):
        raise UnsupportedError("an image without a batch, on a GPU, or padded by a word")
    settings = (*(pair if isinstance(pair, tuple) else (pair, pair) for pair in (stride, padding, dilation)),)
    result: Tensor = _Convolution.apply(input, weight, bias, mode, (*settings, False, (0, 0), groups))
    return result


def _named(names: str) -> set[Any]:
    """The functions of these names, as function, method and operator, also in place."""
    return {
        getattr(owner, name + suffix)
        for name in names.split()
        for owner in (torch, F, Tensor)
        for suffix in ("", "_")
        if hasattr(owner, name + suffix)
    }


_LAYERS: dict[Any, Callable[..., Tensor]] = {F.linear: _linear, F.conv2d: _conv2d}
_FACTS = _named("size dim numel is_floating_point __len__") | {
    getattr(Tensor, name).__get__ for name in ("shape", "ndim", "dtype", "device", "is_cuda", "requires_grad")
}
# What keeps samples apart where all tensors that it is given do, and there are as many rows before as after.
_APART = _named(
    "relu relu6 leaky_relu elu selu celu gelu silu mish hardtanh hardswish hardsigmoid softplus softsign tanhshrink "
    "logsigmoid tanh sigmoid exp log sqrt square abs neg clamp add sub mul div __add__ __radd__ __iadd__ __sub__ "
    "__rsub__ __isub__ __mul__ __rmul__ __imul__ __truediv__ __neg__ dropout dropout1d dropout2d dropout3d "
    "max_pool2d avg_pool2d adaptive_max_pool2d adaptive_avg_pool2d flatten view reshape contiguous"
)


def fill(
    model: nn.Module,
    samples: Samples,
    indices: Sequence[Tensor],
    keys: Tensor | None,
    gradients: Float[Tensor, "h d"],
    losses: Float[Tensor, " h"],
    weights: Float[Tensor, "h d"] | None = None,
) -> None:
    """Write each client's gradient and mean loss.

    Args:
        model: The model.
        samples: The samples of all clients.
        indices: Samples of each client.
        keys: `sample_keys` of all clients' samples, one client after the other.  None: for a model without dropout.
        gradients: Matrix to write into.
        losses: Vector to write into.
        weights: Parameters of each client.  None: the model's.

    Raises:
        UnsupportedError: If the model cannot be computed this way; what was written is then worthless.
    """
    own = getattr(model, "sample_losses", None)
    if own is not None and not isinstance(own, nn.Module):
        raise UnsupportedError("a loss that may read the model's parameters")
    sizes = [len(index) for index in indices]
    x, y = samples.gather(torch.cat(list(indices)))
    x = arranged(model, x)
    mode = SideBySide(model, x, sizes, gradients, weights)
    with torch.enable_grad():
        with nullcontext() if keys is None else KeyedDropout(keys), mode:
            outputs = model(x)
        if not mode.knows(outputs):
            raise UnsupportedError("an output that is not known to hold one sample per row")
        each = sample_losses(model, outputs, y)
        if each.requires_grad:
            shares = torch.empty_like(each)
            for run in mode.runs:
                shares[run.samples] = 1 / run.size
            each.backward(shares)
    for run in mode.runs:
        losses[run.clients] = each.detach()[run.samples].view(-1, run.size).mean(1)
    mode.finish()


@once
def keeps_apart(model: nn.Module, samples: Samples) -> bool:
    """Find out whether `fill` gives what plain autograd gives; see `errors_of`."""

    def fill_from(own: bool, model: nn.Module, batch: ClientBatch, keys: Tensor, rows: Tensor, losses: Tensor) -> None:
        weights = flatten(trainable(model).values()).expand(2, -1) if own else None
        fill(model, batch.samples, batch.indices, keys_in_order(keys, batch.sizes), rows, losses, weights)

    errors = errors_of(model, samples, partial(fill_from, False), partial(fill_from, True))
    return errors is not None and all(error < _TOLERANCE for error in errors)


def errors_of(model: nn.Module, samples: Samples, *ways: Callable[..., None]) -> list[float] | None:
    """Compute two clients, of one sample and of two, in some ways and by plain autograd.

    They are compared at seeded parameters, so that the answer does not depend on where training stands: a run that is
    resumed computes as if it had never stopped.

    Args:
        model: The model.
        samples: Samples that the model takes, whichever.
        ways: Functions of the model, the clients, their keys for dropout, and the gradients and losses to write.

    Returns:
        The relative distances between the gradients, NaN where these are 0.  None: a way raises an error.
    """
    device = samples.targets.device
    batch = ClientBatch(samples, (torch.arange(3, device=device) % len(samples)).split([1, 2]), range(2))
    keys, errors = torch.arange(2, device=device), []
    try:
        twin = deepcopy(model, {id(p): p for p in model.parameters() if not p.requires_grad})  # which may be most of it
        parameters = [p for p in twin.parameters() if p.requires_grad]
        draw = torch.Generator().manual_seed(0)
        for parameter in parameters:
            fan_in = parameter[0].numel() if parameter.ndim > 1 else 1
            parameter.data.copy_(torch.randn(parameter.shape, generator=draw) / fan_in**0.5)
        expected = torch.empty(2, sum(p.numel() for p in parameters), dtype=parameters[0].dtype, device=device)
        for row, index, key in zip(expected, batch.indices, keys, strict=True):
            x, y = samples.gather(index)
            with torch.enable_grad(), KeyedDropout(sample_keys(key, len(index))):
                loss = sample_losses(twin, twin(x), y).mean()
            found = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
            torch.cat([part.flatten() for part in found], out=row)
        for way in ways:
            rows = torch.empty_like(expected)
            way(twin, batch, keys, rows, rows.new_empty(2))
            errors += ((rows - expected).norm(dim=1) / expected.norm(dim=1)).tolist()
    except Exception:  # whatever a model cannot do; the path that it is left to says what
        return None
    return errors
