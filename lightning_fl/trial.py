"""A trial of a model before training: a round of two clients must give what plain autograd gives on each of them alone.

A round computes clients one by one, in slices or many together, and what it computed once it may compute again.  None
of it may change a client's gradient, so a model has to treat each sample by itself, and the same way at every call.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from lightning_fl.client.base import Client
from lightning_fl.client.gradient import Gradient
from lightning_fl.errors import SettingError
from lightning_fl.loss.base import sample_losses
from lightning_fl.network.dropout import KeyedDropout, client_keys, sample_keys
from lightning_fl.network.facts import tensors_in
from lightning_fl.network.parameters import flatten, unflatten
from lightning_fl.network.statistics import mixes, stepping
from lightning_fl.round import Round
from lightning_fl.samples import ClientBatch, Samples
from lightning_fl.text import said

# Relative distances that are more than rounding in float32 and in float64; true faults exceed them by far.
_TOLERANCES = 1e-3, 1e-6
_FIRST, _SECOND, _BOTH = slice(0, 1), slice(1, 2), slice(0, 2)
# What each model has passed with: a command checks a run before it creates any file, and Lightning before training.
_passed: WeakKeyDictionary[nn.Module, object] = WeakKeyDictionary()


def check_trial(model: nn.Module, client: Client, samples: Samples) -> None:
    """Check that a client who holds the first of two samples, and one who holds both, get plain autograd's gradients.

    Args:
        model: The model, in the mode in which it is trained.
        client: The clients' work.
        samples: Two samples.

    Raises:
        SettingError: If they do not; it names the layer where that is known.
    """
    kind = _kind(model, client, samples)
    if _passed.get(model) == kind:
        return
    fault = _Trial(model, client, samples, _TOLERANCES[0]).fault()
    if fault is not None:
        fault = _fault_in_float64(model, client, samples, fault)
    if fault is not None:
        raise SettingError(f"{type(model).__name__} {fault}.")
    _passed[model] = kind


def _fault_in_float64(model: nn.Module, client: Client, samples: Samples, fault: str) -> str | None:
    """Look again where no rounding puts an activation on the other side of a kink: in float64, a little aside."""
    x = samples.inputs
    if x.is_floating_point():
        noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(x.device)
        x = x.double() + 1e-3 * x.double().std() * noise
    tensors = [value for value in (*model.parameters(), *model.buffers()) if value.is_floating_point()]
    doubled = _holding(tensors, [value.detach().double() for value in tensors])
    with suppress(Exception), doubled:  # a model that computes in float32 alone is judged by that
        return _Trial(model, client, Samples(x, samples.targets, samples.n_classes), _TOLERANCES[1]).fault()
    return fault


def _kind(model: nn.Module, client: Client, samples: Samples) -> object:
    """Everything that the answer depends on but numbers, as far as it shows."""
    parts = [(name, type(part), part.training) for name, part in model.named_modules()]
    parameters = [(name, value.dtype, value.requires_grad) for name, value in model.named_parameters()]
    inputs = samples.inputs
    return client.client_chunk, inputs.shape, inputs.dtype, inputs.device, samples.n_classes, parts, parameters


class _Plain(NamedTuple):
    outputs: Tensor
    losses: Tensor
    gradient: Tensor


class _Trial:
    """Two samples, computed by plain autograd and by clients."""

    def __init__(self, model: nn.Module, client: Client, samples: Samples, tolerance: float):
        self.model, self.client, self.samples, self.tolerance = model, client, samples, tolerance
        self.parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
        self.like = list(self.parameters.values())
        self.round = Round(0, 0.1, 0)
        self.keys = sample_keys(client_keys([0], self.round, 0)[0], 2).to(samples.targets.device)

    def fault(self) -> str | None:
        """Say what is wrong; None: nothing."""
        if mixes(self.model):
            return self.fault_in_batches()
        first, second, both = map(self.plain, (_FIRST, _SECOND, _BOTH))
        if why := self.memory(_FIRST, first):
            return why
        if self.differ(both.outputs, torch.cat([first.outputs, second.outputs])):
            return (
                f"mixes the samples of a batch in {self.culprit(_BOTH, _FIRST, _SECOND)}, so that what is computed "
                f"together would change the result; let it treat each sample by itself (batch_first=True, nothing "
                f"over the batch)"
            )
        if self.differ(both.losses, torch.cat([first.losses, second.losses])):
            if self.differ(self.plain(_BOTH).losses, both.losses):
                return "draws random numbers in its loss, which no seed of a round governs; leave them out"
            return "mixes the samples of a batch in its loss; let each sample's loss depend on that sample alone"
        mean = (first.gradient + second.gradient) / 2
        if self.differ(both.gradient, mean):
            return (
                f"mixes the samples of a batch in its backward pass, in the gradient of "
                f"{self.parameter(both.gradient - mean)}, so that what is computed together would change the result; "
                f"let it treat each sample by itself (scale_grad_by_freq=False)"
            )
        del second, mean  # large models have large gradients
        for found, expected in self.compared(first.gradient, both.gradient):
            if self.differ(found, expected):
                return (
                    f"gives clients, who have parameters of their own, another gradient of "
                    f"{self.parameter(found - expected)} than plain autograd; let it find each parameter as a layer's "
                    f"attribute, and recompute nothing in the backward pass"
                )
        return None

    def memory(self, which: slice, before: _Plain) -> str | None:
        """Say what remembers an earlier call with the same samples; None: nothing."""
        with torch.no_grad():
            again = self.outputs(which)
        if not self.differ(again, before.outputs, 0.01):
            return None
        return (
            f"gives other outputs when it is called again, by what {self.culprit(which, which)} remembers, which "
            f"clients do not upload; let its outputs depend on inputs and parameters alone"
        )

    def fault_in_batches(self) -> str | None:
        """Say what is wrong with a model whose layers normalise by the batch, as far as one batch shows it."""
        both = self.plain(_BOTH)
        if why := self.memory(_BOTH, both):
            return why
        if self.differ(found := self.by_clients(1, None)[1], both.gradient):
            return (
                f"gives clients, who have parameters of their own, another gradient of "
                f"{self.parameter(found - both.gradient)} than plain autograd; let it find each parameter as a layer's "
                f"attribute"
            )
        return None

    def compared(self, first: Tensor, both: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield what clients compute, and what plain autograd does: at the model's parameters, and at others."""
        start = flatten(self.like).detach()
        start += 0.01 * torch.randn(start.shape, generator=torch.Generator().manual_seed(0)).to(start)
        with _holding(self.like, unflatten(start, self.like)):
            moved = self.plain(_BOTH).gradient
        for chunk in dict.fromkeys([1, self.client.client_chunk]):  # 1 is also what the server computes
            yield from zip(self.by_clients(chunk, None), (first, both), strict=True)
            yield self.by_clients(chunk, start.expand(2, -1))[1], moved

    def outputs(self, rows: slice) -> Tensor:
        """Compute the model's outputs for some of the samples."""
        with KeyedDropout(self.keys[rows]):
            found: Tensor = self.model(self.samples.inputs[rows])
        return found

    def plain(self, rows: slice) -> _Plain:
        """Compute some of the samples by plain autograd."""
        with _explained(self.model, "cannot be trained"), torch.enable_grad(), stepping(self.round.learning_rate):
            outputs = self.outputs(rows)
            losses = sample_losses(self.model, outputs, self.samples.targets[rows])
            found = torch.autograd.grad(losses.mean(), self.like, allow_unused=True, materialize_grads=True)
        return _Plain(outputs.detach(), losses.detach(), flatten(part.to_dense() for part in found))

    def by_clients(self, chunk: int | None, at: Tensor | None) -> Tensor:
        """Compute both clients' gradients; they are the same client, so what it drops of the first sample is, too."""
        indices = [torch.arange(n, device=self.samples.targets.device) for n in (1, 2)]
        batch = ClientBatch(self.samples, indices, (0, 0), (self.round, 0))
        with _explained(self.model, "cannot be trained by several clients at once", "set client_chunk=1 of the client"):
            return Gradient(client_chunk=chunk).gradients(self.model, batch, at=at).updates

    def differ(self, found: Tensor, expected: Tensor, share: float = 1.0) -> bool:
        """Whether two results differ by more than rounding; what is not finite says nothing."""
        return bool((found - expected).norm() > share * self.tolerance * (found.norm() + expected.norm()))

    def parameter(self, difference: Tensor) -> str:
        """Name the parameter whose gradient is farthest off."""
        off = dict(zip(self.parameters, (float(part.norm()) for part in unflatten(difference, self.like)), strict=True))
        return max(off, key=off.__getitem__)

    def culprit(self, whole: slice, *parts: slice) -> str:
        """Name the first layer that makes something else of some samples than of parts of them, given the same."""

        def run(rows: slice) -> list[_Call]:
            return calls(self.model, lambda: self.plain(rows), _first_tensor)

        for together, *apart in zip(run(whole), *map(run, parts), strict=False):
            if self._agree(together.given, [call.given for call in apart]) and not self._agree(
                together.made, [call.made for call in apart]
            ):
                return together.where
        return "itself"

    def _agree(self, whole: Tensor, parts: list[Tensor]) -> bool:
        """Whether parts make up the whole, along whatever dimension is longer there."""
        if any(part.ndim != whole.ndim for part in parts):
            return False
        longer = (k for k, (n, m) in enumerate(zip(whole.shape, parts[0].shape, strict=True)) if n != m)
        joined = torch.cat(parts, next(longer, 0)) if whole.ndim else parts[0]
        return joined.shape == whole.shape and not self.differ(joined, whole, 0.01 if len(parts) == 1 else 1.0)


class _Call(NamedTuple):
    """A layer, and what was seen when it was called and when it was done."""

    where: str
    given: Any
    made: Any


def calls(model: nn.Module, run: Callable[[], object], look: Callable[[object], Any]) -> list[_Call]:
    """Run a model and look at what each of its layers gets and makes, inner layers before outer ones."""
    seen: list[_Call] = []
    given: list[Any] = []

    def done(name: str, module: nn.Module, arguments: object, output: object) -> None:
        seen.append(_Call(f"{name or 'itself'} ({type(module).__name__})", given.pop(), look(output)))

    hooks = [
        hook
        for name, module in model.named_modules()
        for hook in (
            module.register_forward_pre_hook(lambda module, arguments: given.append(look(arguments))),
            module.register_forward_hook(partial(done, name)),
        )
    ]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def _first_tensor(values: object) -> Tensor:
    """A copy, as layers may write into what they are given; empty if there is none."""
    return next((tensor.detach().clone() for tensor in tensors_in([values])), torch.empty(0))


def random_states(device: torch.device) -> tuple[Any, ...]:
    """Get the states of the global random streams: torch's, Python's and NumPy's."""
    kind, words, *rest = np.random.get_state()
    own = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    streams = [stream.numpy().tobytes() for stream in (torch.get_rng_state(), *own)]
    return (*streams, random.getstate(), kind, bytes(np.asarray(words)), *rest)


@contextmanager
def _holding(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> Iterator[None]:
    """Let tensors, which stay the same objects, hold other values inside."""
    before = [tensor.data for tensor in tensors]
    try:
        for tensor, value in zip(tensors, values, strict=True):
            tensor.data = value
        yield
    finally:
        for tensor, value in zip(tensors, before, strict=True):
            tensor.data = value


@contextmanager
def _explained(model: nn.Module, what: str, *advice: str) -> Iterator[None]:
    """Make a setting's error of whatever a model raises."""
    try:
        yield
    except SettingError:
        raise
    except Exception as error:
        raise SettingError(
            f"{type(model).__name__} {what}: {said(error)}; {' or '.join([*advice, 'change the model or the loss'])}."
        ) from error
