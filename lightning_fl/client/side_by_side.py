"""All clients' gradients by one forward and one backward pass over their samples, side by side in one batch.

``vmap`` pads clients to one size and pays for its transformation again for every chunk; a loop pays for autograd again
for every client.  But a layer's gradient with respect to its weights is a sum over samples, so where the samples of all
clients lie in one batch, each client's gradient is the same sum over its own part of the batch: one batched matrix
product per layer, whose result goes where it belongs in the (h, d) matrix.  Clients may also have weights of their own:
then the forward pass is a batched product too.

The model runs as it is, watched by a mode that sees every torch function.  It stops (`UnsupportedError`) at whatever
does not provably keep one sample per row of every tensor, such as statistics over the batch, and at whatever uses a
trained parameter other than as weight or bias of a layer that it knows.  What a model makes of the mere number of
samples, such as a division by ``len(x)``, shows in a trial against plain autograd on two small clients (`keeps_apart`).
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from operator import or_
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from lightning_fl.client import _layers
from lightning_fl.client._layers import Layout, UnsupportedError
from lightning_fl.loss.base import sample_losses
from lightning_fl.network.dropout import KeyedDropout, keys_in_order, sample_keys
from lightning_fl.network.facts import once, tensors_in
from lightning_fl.network.images import arranged
from lightning_fl.network.parameters import flatten, trainable
from lightning_fl.samples import ClientBatch, Samples

# Relative distance between two gradients that is more than rounding.
_TOLERANCE = 1e-3


class SideBySide(TorchFunctionMode):
    """Inside it layers put each client's gradients where the layout says, and nothing runs that is not known.

    A tensor is known to hold one sample per row if it is the input, or came out of a function that keeps samples apart.

    Args:
        layout: Whose samples lie where.
        inputs: The batch.

    Raises:
        UnsupportedError: At anything else.
    """

    def __init__(self, layout: Layout, inputs: Tensor):
        super().__init__()
        self.layout = layout
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
        tensors = list(tensors_in([*args, *kwargs.values()]))
        result: Any = None
        if func in _LAYERS:
            fine = bool(tensors) and self.knows(tensors[0]) and all(map(self._is_parameter, tensors[1:]))
            result = _LAYERS[func](self.layout, *args, **kwargs) if fine else None
        elif func in _RULES and not any(map(self.layout.trains, tensors)):
            result = func(*args, **kwargs)
            fine = isinstance(result, Tensor) and _RULES[func](self, result, tensors, args, kwargs)
        else:
            fine = False
        if not fine or result.ndim == 0 or len(result) != self.layout.n:
            raise UnsupportedError(str(func))
        self._keep(result)
        return result

    def is_constant(self, tensor: Tensor) -> bool:
        """Whether a tensor has nothing to do with the samples or with what is trained."""
        return not self.knows(tensor) and not tensor.requires_grad

    def _is_parameter(self, tensor: Tensor) -> bool:
        return self.layout.trains(tensor) or self.is_constant(tensor)


# What keeps samples apart; a rule sees (mode, result, tensors, args, kwargs), where the result has a row per sample.


def _elementwise(mode: SideBySide, result: Tensor, tensors: list[Tensor], *_: Any) -> bool:
    """Samples meet samples, or what is the same for all of them."""
    known = [mode.knows(tensor) and tensor.ndim == result.ndim for tensor in tensors]
    same = [mode.is_constant(other) and (other.ndim < result.ndim or len(other) == 1) for other in tensors]
    return any(known) and all(map(or_, known, same))


def _reshaping(mode: SideBySide, result: Tensor, tensors: list[Tensor], *_: Any) -> bool:
    """Rows stay rows where there are as many of them before and after."""
    return all(map(mode.knows, tensors))


def _aligned(mode: SideBySide, result: Tensor, tensors: list[Tensor], *_: Any) -> bool:
    return all(mode.knows(tensor) and tensor.ndim == result.ndim for tensor in tensors)


def _along(default: int | None, more: int = 0) -> Callable[..., bool]:
    """Rule of functions along given dimensions, none of which may be the samples'; ``more`` are new ones."""

    def rule(
        mode: SideBySide, result: Tensor, tensors: list[Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        given = [*args[1:2], *(kwargs[name] for name in ("dim", "axis") if name in kwargs)] or [default]
        dims = given[0] if isinstance(given[0], (list, tuple)) else given[:1]
        n = tensors[0].ndim + more
        return all(map(mode.knows, tensors)) and bool(dims) and all(type(dim) is int and dim % n for dim in dims)

    return rule


def _transposing(mode: SideBySide, result: Tensor, tensors: list[Tensor], args: tuple[Any, ...], *_: Any) -> bool:
    return len(args) == 3 and all(map(mode.knows, tensors)) and all(dim % result.ndim for dim in args[1:])


def _permuting(mode: SideBySide, result: Tensor, tensors: list[Tensor], args: tuple[Any, ...], *_: Any) -> bool:
    dims = args[1] if len(args) == 2 and isinstance(args[1], (list, tuple)) else args[1:]
    return all(map(mode.knows, tensors)) and bool(dims) and dims[0] % result.ndim == 0


def _indexing(mode: SideBySide, result: Tensor, tensors: list[Tensor], args: tuple[Any, ...], *_: Any) -> bool:
    """x[:, ...], by numbers and slices."""
    index = args[1]
    return (
        all(map(mode.knows, tensors))
        and isinstance(index, tuple)
        and index[0] == slice(None)
        and all(part is None or part is Ellipsis or type(part) in (int, slice) for part in index)
    )


def _named(names: str, suffixes: Sequence[str] = ("",)) -> set[Any]:
    """The functions of these names, as function, method and operator."""
    found = set()
    for name in names.split():
        for owner in (torch, F, Tensor):
            found |= {getattr(owner, name + suffix) for suffix in suffixes if hasattr(owner, name + suffix)}
    return found


_FACTS = _named("size dim numel nelement element_size is_floating_point is_complex __len__") | {
    getattr(Tensor, name).__get__ for name in ("shape", "ndim", "dtype", "device", "is_cuda", "requires_grad")
}
_OPERATORS = "add sub mul truediv pow"
_ELEMENTWISE = (
    _named(
        "relu relu6 leaky_relu elu selu celu gelu silu mish hardtanh hardswish hardsigmoid softplus softsign "
        "tanhshrink hardshrink softshrink threshold logsigmoid tanh sigmoid exp expm1 log log1p sqrt rsqrt "
        "reciprocal square abs neg sign sin cos erf clamp clamp_min clamp_max add sub subtract mul multiply div divide "
        "true_divide pow maximum minimum lerp addcmul addcdiv masked_fill dropout dropout1d dropout2d dropout3d",
        ("", "_"),
    )
    | _named("where gt ge lt le eq ne to type float double contiguous clone detach")
    | _named(" ".join(f"__{left}{name}__" for name in _OPERATORS.split() for left in ("", "r", "i")))
    | _named("__neg__ __abs__ __gt__ __ge__ __lt__ __le__ __eq__ __ne__")
)
_POOLS = " ".join(
    f"{kind}_pool{k}d" for kind in ("max", "avg", "lp", "adaptive_max", "adaptive_avg") for k in (1, 2, 3)
)
_RULES: dict[Any, Callable[..., bool]] = (
    dict.fromkeys(_ELEMENTWISE, _elementwise)
    | dict.fromkeys(_named("flatten view reshape unflatten"), _reshaping)
    | dict.fromkeys(_named(f"{_POOLS} expand repeat"), _aligned)
    | dict.fromkeys(
        _named("softmax log_softmax softmin sum mean amax amin var std logsumexp cumsum squeeze select narrow"),
        _along(None),
    )
    | dict.fromkeys(_named("glu"), _along(-1))
    | dict.fromkeys(_named("cat concat"), _along(0))
    | dict.fromkeys(_named("stack unsqueeze"), _along(0, more=1))
    | dict.fromkeys(_named("transpose swapaxes swapdims"), _transposing)
    | dict.fromkeys(_named("permute"), _permuting)
    | dict.fromkeys(_named("__getitem__"), _indexing)
)
_LAYERS: dict[Any, Callable[..., Tensor]] = {
    F.linear: _layers.linear,
    F.conv1d: _layers.convolution,
    F.conv2d: _layers.convolution,
    F.conv3d: _layers.convolution,
    F.embedding: _layers.embedding,
    F.layer_norm: _layers.layer_norm,
    F.rms_norm: _layers.rms_norm,
    F.group_norm: _layers.group_norm,
}


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
        samples: What the indices point into.
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
    layout = Layout(sizes, [p for p in model.parameters() if p.requires_grad], gradients, weights)
    mode = SideBySide(layout, x)
    with torch.enable_grad():
        with nullcontext() if keys is None else KeyedDropout(keys), mode:
            outputs = model(x)
        if not mode.knows(outputs):
            raise UnsupportedError("an output that is not known to hold one sample per row")
        each = sample_losses(model, outputs, y)
        if each.requires_grad:
            each.backward(torch.cat([each.new_full((run.length,), 1 / run.size) for run in layout.runs]))
    for run in layout.runs:
        losses[run.clients] = each.detach()[run.samples].view(-1, run.size).mean(1)
    layout.finish()


@once
def keeps_apart(model: nn.Module, samples: Samples) -> bool:
    """Find out whether `fill` gives what plain autograd gives; see `trial`."""

    def fill_from(own: bool, model: nn.Module, batch: ClientBatch, keys: Tensor, rows: Tensor, losses: Tensor) -> None:
        weights = flatten(trainable(model).values()).expand(2, -1) if own else None
        fill(model, batch.samples, batch.indices, keys_in_order(keys, batch.sizes), rows, losses, weights)

    errors = trial(model, samples, partial(fill_from, False), partial(fill_from, True))
    return errors is not None and all(error < _TOLERANCE for error in errors)


def trial(model: nn.Module, samples: Samples, *ways: Callable[..., None]) -> list[float] | None:
    """Compute two clients, of one sample and of two, in some ways and by plain autograd.

    They are compared at seeded parameters, so that the answer does not depend on where training stands: a run that is
    resumed computes as if it had never stopped.

    Args:
        model: The model.
        samples: Any that it takes.
        ways: Each takes the model, the clients, their keys for dropout, and the gradients and losses to write.

    Returns:
        The relative distances between the gradients, NaN where these are 0.  None: a way raises an error.
    """
    device = samples.targets.device
    batch = ClientBatch(samples, (torch.arange(3, device=device) % len(samples)).split([1, 2]), range(2))
    keys, errors = torch.arange(2, device=device), []
    try:
        twin = deepcopy(model)
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
