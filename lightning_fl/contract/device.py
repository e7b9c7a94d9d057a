"""A GPU for machines that have none: tensors that say they are there, obey its laws, and are computed by the processor.

A `PretendedDevice` notes for each memory where it is said to lie.  As on a real GPU, an operation that mixes devices
raises, and whoever looks at numbers there, or copies some there without ``non_blocking``, makes the processor wait,
which is noted down.
"""

import traceback
from collections.abc import Callable
from contextlib import ExitStack
from time import perf_counter
from typing import Any
from unittest.mock import patch

import pytorch_lightning as pl
import torch
from pytorch_lightning.accelerators import CPUAccelerator
from pytorch_lightning.strategies import SingleDeviceStrategy
from torch import Tensor
from torch._C import DisableTorchFunction
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

CPU = torch.device("cpu")
_aten = torch.ops.aten
# Take an index from any device.
_INDEXING = {_aten.index.Tensor, _aten.index_put, _aten.index_put_, _aten._index_put_impl_, _aten._unsafe_index.Tensor}
_INDEXING = {getattr(op, "default", op) for op in _INDEXING}
# Take a single number from the host, beside those that work entry by entry.
_WITH_NUMBER = {_aten.fill_.Tensor, _aten.fill.Tensor, _aten.masked_fill_.Tensor, _aten.masked_fill.Tensor}
_COPYING = {_aten.copy_.default, _aten.copy.default, _aten._to_copy.default, _aten._copy_from.default}
# How much they give, or what, depends on the numbers, so that the host waits for these.
_WAITING = {
    _aten._local_scalar_dense.default,
    _aten.nonzero.default,
    _aten.masked_select.default,
    _aten._unique2.default,
    _aten.unique_dim.default,
    _aten.unique_consecutive.default,
    _aten.bincount.default,
    _aten.repeat_interleave.Tensor,
    _aten.equal.default,
    _aten.linalg_eigh.default,
    _aten._linalg_eigh.default,
    _aten._linalg_svd.default,
    _aten.linalg_lstsq.default,
    _aten._linalg_solve_ex.default,
}
_FACTS: dict[Any, Callable[[torch.device], Any]] = {
    Tensor.device.__get__: lambda place: place,
    Tensor.is_cuda.__get__: lambda place: place.type == "cuda",  # type: ignore[attr-defined]
    Tensor.is_cpu.__get__: lambda place: place.type == "cpu",  # type: ignore[attr-defined]
}
_READERS = {Tensor.tolist, Tensor.numpy, Tensor.__array__}
_UNTOLD = {torch.tensor, torch.as_tensor, torch.asarray, torch.scalar_tensor, Tensor.new_tensor, Tensor.__deepcopy__}
"""What makes a tensor without any operation."""
_MOVERS = {Tensor.to, Tensor.cpu, Tensor.cuda}


class PretendedDevice(TorchFunctionMode):
    """Inside it, ``.to("cuda")`` and ``device="cuda"`` lead to a GPU, which the processor plays.

    >>> with PretendedDevice() as gpu:
    ...     x = torch.ones(3, device="cuda")
    ...     total = (2 * x).sum().item()
    >>> total, len(gpu.waits)
    (6.0, 1)
    """

    def __init__(self) -> None:
        super().__init__()
        self.device = torch.device("cuda", 0)
        self.waits: list[str] = []
        """Which functions made the processor wait, in order; of those outside of torch, the innermost."""
        self.copies: list[str] = []
        """Likewise: which ones copied to it from the host without ``non_blocking``, and so waited until it was idle."""
        self._operations = _Operations(self)
        self._stack = ExitStack()
        self.chosen: torch.device | None = None  # the device that the function which runs was told
        self.ambient = CPU  # where what it makes out of nothing lies

    def __enter__(self) -> "PretendedDevice":
        stand_ins: dict[str, Any] = {"Event": _Event, "current_stream": _nothing, "get_rng_state": _rng_state}
        for name, stand_in in stand_ins.items():
            self._stack.enter_context(patch.object(torch.cuda, name, stand_in))
        self._stack.enter_context(self._operations)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._stack.close()

    def strategy(self) -> SingleDeviceStrategy:
        """Let a trainer train there."""
        return SingleDeviceStrategy(self.device, accelerator=_Accelerator())

    def where(self, tensor: Tensor) -> torch.device:
        """Say where a tensor lies."""
        with DisableTorchFunction():
            while is_functorch_wrapped_tensor(tensor):
                tensor = get_unwrapped(tensor)
            if tensor.device.type != "cpu" or tensor.layout != torch.strided:
                return tensor.device
            return self.device if getattr(tensor.untyped_storage(), "_pretended", False) else CPU

    def put(self, tensor: Tensor, device: torch.device) -> None:
        """Say that a tensor's memory lies there."""
        with DisableTorchFunction():
            if tensor.device.type == "cpu" and tensor.layout == torch.strided:
                tensor.untyped_storage()._pretended = device.type != "cpu"  # type: ignore[attr-defined]

    def wait(self) -> None:
        """Note who waits."""
        self.waits.append(_asker())

    def _meant(self, device: Any) -> torch.device | None:
        """Read a device; None if it says nothing."""
        if device is None:
            return None
        if isinstance(device, int):
            return self.device
        device = torch.device(device)
        return self.device if device.type == self.device.type else device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _FACTS:
            return _FACTS[func](self.where(args[0]))
        if func in _MOVERS or (func in _UNTOLD and args and isinstance(args[0], Tensor) and func is torch.as_tensor):
            return self._move(func, *args, **kwargs)
        here = any(self.where(leaf) == self.device for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
        if here and func in _READERS:
            if func is not Tensor.tolist:
                raise TypeError(f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() first.")
            self.wait()
        chosen = self._meant(kwargs.get("device"))
        if chosen == self.device:
            generator = kwargs.get("generator")
            if generator is not None and generator.device.type == "cpu":
                raise RuntimeError(f"Expected a '{self.device.type}' device type for generator but found 'cpu'")
            kwargs["device"] = CPU
        before, self.chosen = (self.chosen, self.ambient), chosen
        self.ambient = chosen or (self.device if here else CPU)
        try:
            found = func(*args, **kwargs)
            if func in _UNTOLD:
                self.put(found, self.ambient)
                if self.ambient == self.device and func is not Tensor.__deepcopy__:
                    self.copies.append(_asker())
        finally:
            self.chosen, self.ambient = before
        return found

    def _move(self, func: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        there = self.where(tensor)
        if func is Tensor.cpu:
            wanted: torch.device | None = CPU
        elif func is Tensor.cuda:
            wanted = self.device
        else:
            given = [kwargs.pop("device", None), kwargs.pop("other", None), *args[:1]]
            if isinstance(given[-1], torch.dtype | bool):
                given.pop()
            else:
                args = args[1:]
            target = next((one for one in given if one is not None), None)
            if isinstance(target, Tensor):
                kwargs["dtype"], target = target.dtype, self.where(target)
            wanted = self._meant(target)
        wanted = wanted or there
        if func is not Tensor.to:
            args, kwargs = (), {}
        if wanted.type not in ("cpu", self.device.type):
            return Tensor.to(tensor, wanted, *args, **kwargs)
        promptly = kwargs.pop("non_blocking", False)
        if wanted == CPU and there != CPU:
            if promptly:
                raise RuntimeError("a copy to the CPU with non_blocking=True need not be there when it is read")
            self.wait()
        elif wanted != there and not promptly:
            self.copies.append(_asker())
        before, self.ambient = self.ambient, wanted
        try:
            kwargs["copy"] = kwargs.get("copy", False) or wanted != there
            return Tensor.to(tensor, CPU, *args, **kwargs)
        finally:
            self.ambient = before


class Waits(pl.Callback):
    """Notes which functions waited for the device, or copied to it, in a run's last round, and where the model was."""

    def __init__(self, gpu: PretendedDevice) -> None:
        self.gpu, self._before = gpu, (0, 0)
        self.places: set[torch.device] = set()
        self.waits: list[str] = []
        self.copies: list[str] = []

    def on_train_batch_start(self, *args: Any) -> None:
        """Begin to count."""
        self._before = len(self.gpu.waits), len(self.gpu.copies)

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, *args: Any) -> None:
        """Count."""
        waits, copies = self._before
        self.waits, self.copies = self.gpu.waits[waits:], self.gpu.copies[copies:]
        self.places |= {value.device for value in module.parameters()}


class _Operations(TorchDispatchMode):
    """Checks each operation's arguments, and says where its results lie.

    Lists have no type here: whoever checks types at run time looks into one at a random place, and a run refuses models
    in whose operations random numbers are drawn.
    """

    def __init__(self, owner: PretendedDevice) -> None:
        super().__init__()
        self.owner = owner

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        owner, kwargs = self.owner, dict(kwargs or {})
        with DisableTorchFunction():
            given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
            places = [owner.where(tensor) for tensor in given]
            if func in _COPYING:
                return self._copy(func, args, kwargs, places)
            there = self._common(func, args, given, places)
            if "device" in kwargs or not given:
                there = owner.chosen or (there if given else owner.ambient)
            if there == owner.device and (func in _WAITING or (func in _INDEXING and _masks(args[1]))):
                owner.wait()
            elif there == owner.device and func in _INDEXING and CPU in map(owner.where, _given(args[1])):
                owner.copies.append(_asker())
            found = func(*args, **kwargs)
            if there == owner.device:
                for leaf in tree_leaves(found):
                    if isinstance(leaf, Tensor):
                        owner.put(leaf, there)
            return found

    def _copy(self, func: Any, args: Any, kwargs: Any, places: Any) -> Any:
        owner = self.owner
        found = func(*args, **kwargs)
        if func is _aten._to_copy.default:
            target = owner.ambient if kwargs.get("device") is not None else places[0]
            owner.put(found, target)
        elif places[1] == owner.device and places[0] == CPU:
            owner.wait()
        elif places[0] == owner.device and places[1] == CPU and not (len(args) > 2 and args[2]):
            owner.copies.append(_asker())
        return found

    def _common(self, func: Any, args: Any, given: Any, places: Any) -> torch.device:
        """Find the device that computes.

        Raises:
            RuntimeError: If the operation takes tensors of several, except single numbers from the host.
        """
        owner = self.owner
        if owner.device not in places:
            return CPU
        if func in _INDEXING:
            places, given = places[:1], given[:1]
            if places[0] == CPU:
                raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
            values = args[2] if len(args) > 2 else None
            if isinstance(values, Tensor) and values.ndim and owner.where(values) == CPU:
                raise RuntimeError(f"{func}: the values are on the cpu, what they are put into is on {owner.device}")
        lenient = torch.Tag.pointwise in func.tags or func in _WITH_NUMBER
        for k, (tensor, place) in enumerate(zip(given, places, strict=True)):
            written = k == 0 and func._schema.is_mutable
            if place != owner.device and not (lenient and tensor.ndim == 0 and not written):
                raise RuntimeError(
                    f"Expected all tensors to be on the same device, but found at least two devices, {owner.device} "
                    f"and {place}! ({func}, argument {k} of shape {tuple(tensor.shape)})"
                )
        return owner.device


def _given(index: Any) -> list[Tensor]:
    return [part for part in index if part is not None]


def _masks(index: Any) -> bool:
    return any(part.dtype in (torch.bool, torch.uint8) for part in _given(index))


class _Accelerator(CPUAccelerator):
    """Computes on whatever it is told."""

    def setup_device(self, device: torch.device) -> None:
        pass


class _Event:
    """A mark in a queue that is always empty."""

    def __init__(self, **settings: Any) -> None:
        self.time = 0.0

    def record(self, stream: Any = None) -> None:
        self.time = perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, later: "_Event") -> float:
        return 1e3 * (later.time - self.time)


def _nothing(device: Any = None) -> None:
    return None


def _rng_state(device: Any = None) -> Tensor:
    return torch.get_rng_state()


_OTHERS = "/torch/", "/jaxtyping/", "/beartype/", "/conftest.py"  # what computes, and what checks at each call


def _asker() -> str:
    """Name the innermost function that is neither torch's, a check's nor this file's."""
    for frame in reversed(traceback.extract_stack()):
        if frame.filename != __file__ and "<" not in frame.filename and not any(p in frame.filename for p in _OTHERS):
            return frame.name
    return ""
