"""Samples in memory, and which client holds which of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from lightning_fl.errors import DataError, check_whole
from lightning_fl.round import Round

Augment = Literal["crop_flip"]


@dataclass(frozen=True)
class Samples:
    """A data set as two tensors on one device; pixels stay bytes until a batch is gathered.

    Args:
        inputs: (N, ...); uint8 is scaled to [0, 1], other real numbers are taken as they are.
        targets: (N,) class numbers, int64.
        n_classes: c; every target is in [0, c).
        mean, std: Per channel (or one number), subtracted and divided after scaling; for uint8 inputs; others are taken
            as they are.
        dtype: Type of what is gathered, unless it is whole numbers; a run computes in its model's.  None: float32 for
            uint8, others as they are.
        augment: "crop_flip": clients train on random crops and mirror images (`lightning_fl.augment`); all other uses
            are of the samples as they are.  None: so do clients.

    Raises:
        DataError: If inputs or targets are no such tensors, there are none, they differ in number, or a target is out
            of range.
        SettingError: If n_classes is not a whole number of at least 1.
    """

    inputs: Tensor
    targets: Tensor
    n_classes: int
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    dtype: torch.dtype | None = None
    augment: Augment | None = None

    def __post_init__(self) -> None:
        check_whole("n_classes", self.n_classes, 1)
        for name, values in [("inputs", self.inputs), ("targets", self.targets)]:
            if not isinstance(values, Tensor):
                raise DataError(f"{name} must be a tensor, got {type(values).__name__}; use torch.as_tensor({name}).")
        if self.targets.dim() != 1 or self.targets.dtype != torch.int64:
            raise DataError(
                f"targets must be (N,) class numbers, int64, got {tuple(self.targets.shape)} of {self.targets.dtype}."
            )
        check_kind(self.inputs)
        if not len(self.inputs):
            raise DataError("a data set needs a sample, got none.")
        if len(self.inputs) != len(self.targets):
            raise DataError(
                f"a data set needs as many targets as inputs, got {len(self.targets)} and {len(self.inputs)}."
            )
        if self.targets.device.type != "cpu":
            return  # checked where they were made: whoever looks at a GPU's numbers waits
        low, high = int(self.targets.min()), int(self.targets.max())
        if low < 0 or high >= self.n_classes:
            raise DataError(f"targets must be in [0, {self.n_classes}), got {low} to {high}.")

    def __len__(self) -> int:
        return len(self.targets)

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> "Samples":
        """Move to a device, to be gathered in a type; None: as before."""
        return replace(self, inputs=self.inputs.to(device), targets=self.targets.to(device), dtype=dtype or self.dtype)

    def gather(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Gather inputs, scaled and normalised, and targets; the results take the shape of ``indices`` in front."""
        flat = indices.reshape(-1)
        inputs = self.inputs.index_select(0, flat)  # several times faster than inputs[indices]
        if inputs.dtype == torch.uint8:
            inputs = inputs.to(self.dtype or torch.float32)
            scale, shift = self._affine(inputs)
            inputs.mul_(scale).add_(shift)
        elif inputs.is_floating_point():
            inputs = inputs.to(self.dtype or inputs.dtype)
        shape = tuple(indices.shape)
        return inputs.view(*shape, *inputs.shape[1:]), self.targets.index_select(0, flat).view(shape)

    def _affine(self, like: Tensor) -> tuple[Any, Any]:
        """Scale and shift that turn bytes into normalised inputs: numbers, or tensors that broadcast over pixels."""
        scale = [1 / (255 * std) for std in self.std]
        shift = [-mean / std for mean, std in zip(self.mean, self.std, strict=True)]
        if len(scale) == 1:
            return scale[0], shift[0]
        return like.new_tensor(scale)[:, None, None], like.new_tensor(shift)[:, None, None]

    def batches(self, size: int) -> "Batches":
        """All samples in order, ``size`` at a time."""
        return Batches(self, size)


def check_kind(inputs: Tensor) -> None:
    """Check that inputs are numbers that models compute with.

    Raises:
        DataError: If they are sparse, nested or quantized, complex, or whole numbers without sign of more than a byte.
    """
    if inputs.layout != torch.strided or inputs.is_nested or inputs.is_quantized:
        raise DataError("inputs must be dense, got a sparse, nested or quantized tensor; give x.to_dense().")
    if inputs.is_complex():
        raise DataError(f"inputs must be real, got {inputs.dtype}; give torch.view_as_real(x), say.")
    if inputs.dtype in (torch.uint16, torch.uint32, torch.uint64):
        raise DataError(
            f"inputs must be floats, bytes (uint8) or signed whole numbers, got {inputs.dtype}; give x.float(), of "
            f"16-bit pixels x.float() / 65535, of tokens x.long()."
        )


@dataclass(frozen=True)
class Batches:
    """An evaluation loader: slices of the tensors, no worker, no copy per sample."""

    samples: Samples
    size: int

    def __len__(self) -> int:
        return -(-len(self.samples) // self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        indices = torch.arange(len(self.samples), device=self.samples.targets.device)
        return (self.samples.gather(batch) for batch in indices.split(self.size))


@dataclass(frozen=True)
class ClientBatch:
    """Which clients compute on which samples: one index tensor per client into shared samples.

    Args:
        samples: The samples of all clients.
        indices: The samples that each client holds.
        ids: Each client's number in the federation; virtual clients of the server have negative ones.
        drawing: The round, and the number of a client's step in it, on which dropout's draws depend.  None: not
            known.
    """

    samples: Samples
    indices: Sequence[Tensor]
    ids: Sequence[int]
    drawing: tuple[Round, int] | None = None

    def __len__(self) -> int:
        return len(self.indices)

    def to(self, device: torch.device, samples: Samples) -> "ClientBatch":
        """Move the indices to a device, where the samples are already."""
        return replace(self, samples=samples, indices=[index.to(device) for index in self.indices])

    @cached_property
    def sizes(self) -> list[int]:
        """Number of samples that each client holds."""
        return [index.shape[0] for index in self.indices]

    def class_counts(self) -> Tensor:
        """The (clients, c) table of how many samples of each class each client holds."""
        c = self.samples.n_classes
        return torch.stack([self.samples.targets[index].bincount(minlength=c) for index in self.indices]).cpu()


@dataclass(frozen=True)
class RoundBatch:
    """One round's participants, as the data module hands them to the training step.

    Args:
        index: The round's number, from 0.
        honest: The honest clients and their samples.
        byzantine: The clients that attack, and their samples.
        data_weights: (n,) share of each client, honest ones first.
        server: One virtual client per class, on the server's few samples.
        seed: The run's seed, from which every draw of the round is derived.
    """

    index: int
    honest: ClientBatch
    byzantine: ClientBatch
    data_weights: Tensor
    server: ClientBatch
    seed: int

    @property
    def ids(self) -> list[int]:
        """Number of each client, honest ones first."""
        return [*self.honest.ids, *self.byzantine.ids]
