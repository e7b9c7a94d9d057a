"""Your own data: tensors in memory, or any data set of torch."""

from collections.abc import Sequence
from operator import index
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lightning_fl import seeding
from lightning_fl.data.base import FederatedDataModule, check_alike
from lightning_fl.errors import DataError, SettingError
from lightning_fl.federation import Federation
from lightning_fl.partition.base import Partition
from lightning_fl.rows import broken_rows
from lightning_fl.samples import Samples
from lightning_fl.text import many


class TensorData(FederatedDataModule):
    """Spread samples in memory over clients.

    Args:
        train: (N, ...) inputs and (N,) class numbers from 0, as tensors or anything that ``torch.as_tensor`` takes.
            Bytes (uint8) are scaled to [0, 1], other numbers are taken as they are; float64 becomes float32.
        test: The same for evaluation.
        partition: Spreads the training samples over the clients.  None: `Pathological`.
        n_clients: Clients that hold data.
        n_byzantine: b, how many attack, in addition to those.
        federation: Who takes part, if these two numbers are not enough; it replaces them.
        n_classes: c.  None: one more than the largest class number.
        settings: See the base class; without ``server_samples`` the server holds 20 of each class, fewer where the
            rarest class has fewer.

    Raises:
        DataError: If inputs and targets do not match, an input is NaN or inf, or no target is 0 and n_classes is None.

    >>> x, y = torch.randn(60, 2), torch.arange(60) % 3
    >>> data = TensorData((x, y), (x, y), n_clients=9)
    >>> data.setup()
    >>> data.clients.class_counts()[1].tolist()
    [3, 3, 0]
    """

    def __init__(
        self,
        train: tuple[Any, Any],
        test: tuple[Any, Any],
        partition: Partition | None = None,
        n_clients: int = 100,
        n_byzantine: int = 0,
        federation: Federation | None = None,
        n_classes: int | None = None,
        **settings: Any,
    ):
        pairs = [_tensors(split, pair) for split, pair in [("training", train), ("test", test)]]
        made = Federation(n_clients, n_byzantine, seed=settings.get("seed", 0)) if federation is None else federation
        super().__init__(partition, made, **{"server_samples": None} | settings)
        self._follow["federation"] = federation is None
        if n_classes is None and len(every := torch.cat([targets for _, targets in pairs])):
            n_classes = int(every.max()) + 1
            if every.min() > 0:
                raise DataError(
                    f"classes are numbered from 0, got targets from {every.min()} to {every.max()}; subtract "
                    f"{every.min()}, or give n_classes={n_classes} if class 0 has no samples here."
                )
        self._samples = [Samples(*pair, 1 if n_classes is None else n_classes) for pair in pairs]
        check_alike(*self._samples)

    @classmethod
    def from_dataset(
        cls, dataset: Dataset[Any], test: Dataset[Any] | None = None, test_share: float = 0.2, **settings: Any
    ) -> "TensorData":
        """Read a data set of (input, target) into memory.

        Args:
            dataset: Inputs of one shape, as tensors, arrays or images (PIL's become bytes, channels first), and class
                numbers from 0.  It is read once, so transforms that draw at random are drawn once.
            test: For evaluation.  None: a share of the samples is drawn from ``dataset`` by the seed.
            test_share: That share, in (0, 1).
            settings: See the class.

        Raises:
            DataError: If an item is not a pair, or the shapes differ.
            SettingError: If the share leaves a split empty.
        """
        inputs, targets = read_pairs(dataset)
        if test is not None:
            return cls((inputs, targets), read_pairs(test), **settings)
        held = round(test_share * len(targets))
        if not 0 < held < len(targets):
            raise SettingError(
                f"test_share={test_share} of {len(targets)} samples leaves a split empty; give another share or test."
            )
        order = torch.randperm(len(targets), generator=seeding.generator(settings.get("seed", 0), "test split"))
        drawn, left = order[:held].sort().values, order[held:].sort().values
        return cls((inputs[left], targets[left]), (inputs[drawn], targets[drawn]), **settings)

    def load(self) -> tuple[Samples, Samples]:
        """Return the samples; they are in memory."""
        train, test = self._samples
        return train, test


def read_pairs(dataset: Dataset[Any]) -> tuple[Tensor, Tensor]:
    """Read a data set of (input, target) into two tensors; see `TensorData.from_dataset`.

    Raises:
        DataError: If there are no items, an item is not a pair, a target is not a class number, or the shapes differ.
    """
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        advice = ", not its loader" if isinstance(dataset, DataLoader) else ""
        raise DataError(f"samples are read by their number, got {type(dataset).__name__}; give a Dataset{advice}.")
    inputs: list[Tensor] = []
    targets: list[int] = []
    for i in range(len(dataset)):
        item = dataset[i]
        if not isinstance(item, Sequence) or len(item) != 2:
            raise DataError(f"a data set needs items (input, target), got {type(item).__name__} for sample {i}.")
        inputs.append(_as_tensor(item[0]))
        try:
            targets.append(index(item[1]))
        except (TypeError, ValueError) as error:
            raise DataError(f"a target is a class number, got {item[1]!r} for sample {i}.") from error
        if inputs[-1].shape != inputs[0].shape:
            raise DataError(
                f"inputs need one shape, got {tuple(inputs[0].shape)} for sample 0 and {tuple(inputs[-1].shape)} for "
                f"sample {i}; resize them in the data set's transform."
            )
    if not inputs:
        raise DataError("a data set needs a sample, got none.")
    return torch.stack(inputs), torch.tensor(targets)


def _as_tensor(value: Any) -> Tensor:
    if hasattr(value, "getbands"):  # one of PIL's images
        from torchvision.transforms.functional import pil_to_tensor

        shown = {"P": "RGB", "PA": "RGB", "1": "L"}  # a palette's numbers are no colours
        image: Tensor = pil_to_tensor(value.convert(shown[value.mode]) if value.mode in shown else value)
        return image
    return torch.as_tensor(value)


def _tensors(split: str, pair: Any) -> tuple[Tensor, Tensor]:
    if not isinstance(pair, Sequence) or len(pair) != 2:
        advice = "; TensorData.from_dataset reads a data set" if isinstance(pair, Dataset) else ""
        raise DataError(f"the {split} samples must be (inputs, targets), got {type(pair).__name__}{advice}.")
    try:
        x, y = (torch.as_tensor(values).cpu() for values in pair)
    except Exception as error:  # frames of pandas and lists of text raise all sorts
        raise DataError(
            f"the {split} samples cannot be made tensors ({' '.join(str(error).split())}); give numbers in arrays or "
            f"tensors, of a data frame frame.to_numpy()."
        ) from error
    if y.dim() != 1 or y.is_floating_point() or y.is_complex():
        raise DataError(f"the {split} targets must be one class number per sample, got {tuple(y.shape)} of {y.dtype}.")
    x = x.float() if x.dtype in (torch.float64, torch.float16, torch.bfloat16) else x
    broken = broken_rows(x.reshape(len(x), -1)).nonzero().flatten() if x.is_floating_point() and x.numel() else y[:0]
    if len(broken):
        raise DataError(f"the {split} inputs hold NaN or inf in {many(len(broken), 'sample')} (first: {broken[0]}).")
    return x, y.long()
