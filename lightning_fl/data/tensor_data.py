"""Your own data: tensors in memory, or any data set of torch or Hugging Face."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from lightning_fl.data._items import Place, check_same_classes, held_out, read
from lightning_fl.data.base import FederatedDataModule, GivenFederation, GivenPartition, check_alike
from lightning_fl.errors import DataError, SettingError
from lightning_fl.federation import Federation
from lightning_fl.partition.natural import NaturalFile
from lightning_fl.samples import Samples, check_kind
from lightning_fl.text import many, said
from lightning_fl.updates.rows import broken_rows


class TensorData(FederatedDataModule):
    """Spread samples in memory over clients.

    Args:
        train: (N, ...) inputs and (N,) or (N, 1) class numbers from 0, as tensors or anything that ``torch.as_tensor``
            takes.  Bytes (uint8) are pixels and scaled to [0, 1]; other numbers are taken as they are.  Bools become
            0 and 1; whole numbers are for models that take tokens, all others come in the type of a model's parameters.
        test: The same for evaluation.
        partition: Spreads the training samples over the clients: a partition, or a list with the numbers of each
            client's samples.  None: `Pathological`.
        n_clients: Clients that hold data.  None: as many as the partition was made for, else 100.
        n_byzantine: b, how many attack, in addition to those.
        federation: Who takes part, if these two numbers are not enough; it replaces them.
        n_classes: c.  None: as many as have names, else one more than the largest class number.
        class_names: Names of the classes, in the order of their numbers.  None: they have none.
        settings: See the base class; without ``server_samples`` the server holds 20 of each class, fewer where the
            rarest class has fewer.

    Raises:
        DataError: If inputs and targets do not match, an input is NaN, inf or masked, bytes are not pixels (none is
            above 127), some inputs are pixels up to 255 and others in [0, 1], or a class has no sample in either split
            and the number of classes is not given.

    >>> x, y = torch.randn(60, 2), torch.arange(60) % 3
    >>> data = TensorData((x, y), (x, y), n_clients=9)
    >>> data.setup()
    >>> data.clients.class_counts()[1].tolist()
    [3, 3, 0]
    """

    def __init__(
        self,
        train: tuple[Any, Any] | Any,  # Any: what else is given, such as four tensors, is explained below
        test: tuple[Any, Any] | Any,
        partition: GivenPartition = None,
        n_clients: int | Any | None = None,
        n_byzantine: int = 0,
        federation: GivenFederation = None,
        n_classes: int | None = None,
        class_names: Sequence[str] | None = None,
        **settings: Any,
    ):
        pairs = [_tensors(split, pair) for split, pair in [("training", train), ("test", test)]]
        super().__init__(partition, federation, **{"server_samples": None} | settings)
        if federation is None:
            n = (self.partition.n_clients or 100) if n_clients is None else n_clients
            self.federation = Federation(n, n_byzantine, seed=self.seed)
        self.class_names = None if class_names is None else list(class_names)
        if n_classes is None:
            n_classes = (
                _count(torch.cat([targets for _, targets in pairs])) if class_names is None else len(class_names)
            )
        self._samples = [Samples(*pair, n_classes) for pair in pairs]
        check_alike(*self._samples)
        _check_scale(*(x for x, _ in pairs))

    @classmethod
    def from_dataset(
        cls,
        dataset: Dataset[Any] | Any,
        test: Dataset[Any] | Any | None = None,
        test_share: float = 0.2,
        input: Place = None,
        target: Place = None,
        user: Place = None,
        **settings: Any,
    ) -> "TensorData":
        """Read a data set into memory.

        Args:
            dataset: Items (input, target), further parts ignored, or dictionaries such as Hugging Face's rows; or a
                dictionary of whole columns.  Inputs have one shape and type, as tensors, arrays or images (PIL's become
                bytes, channels first); targets are class numbers from 0.  Each item is read once, so transforms that
                draw at random are drawn once.  Names of classes are taken over.
            test: Samples for evaluation.  None: a share of the samples is drawn from ``dataset`` by the seed.
            test_share: That share, in (0, 1).
            input: Which part of an item is the input: its key or number.  None: the first, or the only one left.
            target: Which part is the class.  None: the second, or the one that is named label, target or y.
            user: Which part is the user: each user of the training samples is a client (`Natural`).  None: none.
            settings: See the class.

        Raises:
            DataError: If an item cannot be read or has no such parts, or inputs differ in shape or type; the message
                names the sample.
            SettingError: If the share leaves a split empty, or both ``user`` and a partition are given.
        """
        items = read(dataset, input, target, user)
        train, users = (items.inputs, items.targets), items.users
        if test is None:
            left, held = held_out(len(items.targets), test_share, settings.get("seed", 0))
            train, tested = ((items.inputs[index], items.targets[index]) for index in (left, held))
            users = [users[i] for i in left.tolist()] if users else []
        else:
            others = read(test, input, target, ignored=user)
            check_same_classes(items.classes, others.classes)
            tested = (others.inputs, others.targets)
        if users and settings.get("partition") is not None:
            raise SettingError(f"user={user!r} makes each user a client, got a partition, too; leave one out.")
        if users:
            settings["partition"] = NaturalFile()
            if settings.get("federation") is None and settings.get("n_clients") is None:
                settings["n_clients"] = len({*users})
        data = cls(train, tested, **{"class_names": items.classes} | settings)
        data.users = users or None
        return data

    def load(self) -> tuple[Samples, Samples]:
        """Return the samples; they are in memory."""
        train, test = self._samples
        return train, test


def _tensors(split: str, pair: Any) -> tuple[Tensor, Tensor]:
    if not isinstance(pair, Sequence) or len(pair) != 2:
        advice = "; TensorData.from_dataset reads a data set" if isinstance(pair, Dataset) else ""
        raise DataError(f"the {split} samples must be (inputs, targets), got {type(pair).__name__}{advice}.")
    if any(np.ma.is_masked(values) for values in pair):
        raise DataError(f"the {split} samples have masked values, which torch would unmask; give x.filled(0), say.")
    try:
        x, y = (torch.as_tensor(values).cpu() for values in pair)
    except Exception as error:  # frames of pandas and lists of text raise all sorts
        raise DataError(
            f"the {split} samples cannot be made tensors ({said(error)}); give numbers in arrays or "
            f"tensors, of a data frame frame.to_numpy(), of a sparse matrix x.toarray()."
        ) from error
    y = y[:, 0] if y.dim() == 2 and y.shape[1] == 1 else y
    if y.dim() != 1 or y.is_floating_point() or y.is_complex():
        advice = "; of one-hot rows give y.argmax(1)" if y.dim() == 2 else ""
        raise DataError(
            f"the {split} targets must be one class number per sample, got {tuple(y.shape)} of {y.dtype}{advice}."
        )
    if x.dtype in (torch.float16, torch.bfloat16, torch.bool):
        x = x.float()
    elif x.dtype in (torch.int8, torch.int16):
        x = x.long()
    check_kind(x)
    numbers = x.float().reshape(len(x), -1) if x.is_floating_point() and x.numel() else torch.zeros(1, 1)
    broken = broken_rows(numbers).nonzero().flatten()
    if len(broken):
        raise DataError(f"the {split} inputs hold NaN or inf in {many(len(broken), 'sample')} (first: {broken[0]}).")
    return x, y.long()


def _count(targets: Tensor) -> int:
    """Count the classes, all of which must have samples."""
    if not len(targets):
        return 1
    numbers = targets.unique().tolist()
    c = numbers[-1] + 1
    absent = sorted(set(range(min(c, len(numbers) + 3))) - set(numbers))[:3]
    if absent:
        raise DataError(
            f"classes are numbered from 0 without gaps, got targets from {numbers[0]} to {numbers[-1]}, none of them "
            f"{' or '.join(map(str, absent))}; number them anew (torch.unique(y, return_inverse=True)[1]), or give "
            f"n_classes={c} if there are such classes without samples here."
        )
    return int(c)


def _check_scale(*splits: Tensor) -> None:
    """Refuse inputs that are scaled in two ways, and bytes that may not be pixels.

    Raises:
        DataError: If so.
    """
    if splits[0].dtype == torch.uint8 and (most := max(int(x.max()) for x in splits)) < 128:
        raise DataError(
            f"bytes are taken for pixels and divided by 255, got none above {most}; give x.float() for other numbers, "
            f"x.float() / 255 for dark pixels."
        )
    pixels = unit = None
    for split, x in zip(("training", "test"), splits, strict=True):
        if not x.is_floating_point() or x[0].numel() < 16:  # fewer are features, which may be anything
            return
        for start in range(0, len(x), 1000):
            rows = x[start : start + 1000].flatten(1)
            low, high, whole = rows.amin(1), rows.amax(1), (rows == rows.round()).all(1)
            for sample in ((low >= 0) & (high > 127) & (high <= 255) & whole).nonzero().flatten().tolist()[:1]:
                pixels = pixels or f"{split} sample {start + sample}"
            for sample in ((low >= 0) & (high <= 1) & ~whole).nonzero().flatten().tolist()[:1]:
                unit = unit or f"{split} sample {start + sample}"
    if pixels and unit:
        raise DataError(
            f"inputs need one scale, got whole numbers up to 255 ({pixels}) beside numbers from 0 to 1 ({unit}); "
            f"divide the first by 255."
        )
