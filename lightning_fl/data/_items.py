"""Read data sets item by item: torch's, torchvision's, Hugging Face's, WILDS', or columns in a dictionary."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from operator import index
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Subset

from lightning_fl import seeding
from lightning_fl.data._files import check_mode
from lightning_fl.errors import DataError, SettingError

Place = str | int | None
_TARGETS = ("label", "labels", "target", "targets", "y")
_SPLITS = {"train", "training", "test", "testing", "val", "valid", "validation", "dev"}


class Items(NamedTuple):
    """A data set in memory: inputs (N, ...), class numbers (N,), each sample's user if asked for, names of classes."""

    inputs: Tensor
    targets: Tensor
    users: list[Any]
    classes: list[str] | None


def read(dataset: Any, input: Place = None, target: Place = None, user: Place = None, ignored: Place = None) -> Items:
    """Read a data set; see `TensorData.from_dataset`.

    Raises:
        DataError: If there are no items, one cannot be read or lacks what is asked for, a target is not a class number,
            or inputs differ in shape or type; the message names the sample, and its file if that is known.
    """
    if isinstance(dataset, Mapping):
        if "train" in dataset:
            raise DataError(f'the data have splits ({", ".join(dataset)}); give one, such as dataset["train"].')
        lengths = {name: len(column) for name, column in dataset.items()}
        if len({*lengths.values()}) > 1:
            told = ", ".join(f"{length} of {name}" for name, length in lengths.items())
            raise DataError(f"columns need one length, got {told}.")
        dataset = [dict(zip(dataset, row, strict=True)) for row in zip(*dataset.values(), strict=True)]
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        advice = ", not its loader" if isinstance(dataset, DataLoader) else ""
        raise DataError(f"samples are read by their number, got {type(dataset).__name__}; give a Dataset{advice}.")
    if len(dataset) and (path := _file(dataset, 0)):
        with suppress(OSError), Image.open(path) as image:  # torchvision's loader would make 16 bits white
            check_mode(image, path)
    inputs: list[Tensor] = []
    targets: list[int] = []
    users: list[Any] = []
    for i in range(len(dataset)):
        item = _item(dataset, i)
        if not inputs:
            input, target = _places(item, input, target, (user, ignored))
        try:
            x, y = item[input], item[target]
            users += [] if user is None else [item[user]]
        except (LookupError, TypeError) as error:
            wanted = [place for place in (input, target, user) if place is not None]
            raise DataError(f"sample {i} lacks one of the parts {wanted}: {type(item).__name__}.") from error
        x = _as_tensor(x, i)
        inputs.append(x)
        targets.append(_class_number(y, i))
        if x.shape != inputs[0].shape:
            raise DataError(
                f"inputs need one shape, got {tuple(inputs[0].shape)} for sample 0 and {tuple(x.shape)} for sample "
                f"{i}; resize them, by data.side or in the data set's transform."
            )
        if x.dtype != inputs[0].dtype:
            raise DataError(
                f"inputs need one type, got {inputs[0].dtype} for sample 0 and {x.dtype} for sample {i}; make all of "
                f"them bytes or all floats in the data set's transform."
            )
    if not inputs:
        raise DataError("a data set needs a sample, got none.")
    return Items(torch.stack(inputs), torch.tensor(targets), users, _classes(dataset, target))


def _item(dataset: Any, i: int) -> Any:
    """Get an item, naming its file if it cannot be read."""
    try:
        return dataset[i]
    except (OSError, SyntaxError, ValueError, LookupError) as error:  # PIL raises the first three on damaged files
        where = f" ({path})" if (path := _file(dataset, i)) else ""
        raise DataError(f"sample {i}{where} cannot be read: {type(error).__name__}: {error}.") from error


def _file(dataset: Any, i: int) -> str | None:
    """Find the file of a sample in one of torchvision's folders, or a subset of it."""
    while isinstance(dataset, Subset):
        dataset, i = dataset.dataset, int(dataset.indices[i])
    files = getattr(dataset, "samples", None)
    return str(files[i][0]) if isinstance(files, list) and i < len(files) and isinstance(files[i], tuple) else None


def _places(item: Any, input: Place, target: Place, others: Sequence[Place]) -> tuple[Any, Any]:
    """Find which parts of an item are input and target, where that is plain."""
    if isinstance(item, Mapping):
        places: list[Any] = list(item)
        targets = [place for place in places if place in _TARGETS]
    elif isinstance(item, Sequence) and not isinstance(item, str):
        places = list(range(len(item)))
        targets = places[1:] if len(item) == 2 else [place for place in places[1:] if _is_number(item[place])]
    else:
        raise DataError(f"a data set needs items (input, target), got {type(item).__name__} for sample 0.")
    if target is None and len(targets) == 1:
        (target,) = targets
    inputs = [place for place in places if place not in (target, *others)]
    if input is None and inputs and target is not None:
        input = inputs[0] if len(inputs) == 1 or not isinstance(item, Mapping) else None
    if input is None or target is None:
        raise DataError(f"an item has the parts {places}; say which are meant: input=..., target=... .")
    return input, target


def _is_number(value: Any) -> bool:
    try:
        _class_number(value, 0)
    except DataError:
        return False
    return True


def _class_number(value: Any, i: int) -> int:
    """Read a class number, which may be alone in an array or list."""
    alone = value
    if isinstance(value, np.ndarray | list | tuple | Tensor):
        flat = value.reshape(-1) if isinstance(value, np.ndarray | Tensor) else value
        alone = flat[0] if len(flat) == 1 else value
    try:
        return index(alone)
    except (TypeError, ValueError) as error:
        raise DataError(f"a target is a class number, got {value!r} for sample {i}.") from error


def _as_tensor(value: Any, i: int) -> Tensor:
    if hasattr(value, "getbands"):  # one of PIL's images
        from torchvision.transforms.functional import pil_to_tensor

        check_mode(value, f"sample {i}")
        shown = {"P": "RGB", "PA": "RGB", "1": "L"}  # a palette's numbers are no colours
        image: Tensor = pil_to_tensor(value.convert(shown[value.mode]) if value.mode in shown else value)
        return image
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"an input is numbers or an image, got {type(value).__name__} for sample {i} ({error})."
        ) from error


def _classes(dataset: Any, target: Place) -> list[str] | None:
    """Find the classes' names, which torchvision and Hugging Face keep in different places."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    if isinstance(dataset, ConcatDataset):
        found = [_classes(part, target) for part in dataset.datasets]
        for other in found[1:]:
            check_same_classes(found[0], other)
        return found[0]
    features = getattr(dataset, "features", None)
    names = getattr(features.get(target), "names", None) if isinstance(features, Mapping) else None
    if names is None and getattr(dataset, "target_transform", None) is None:  # which may number them anew
        names = getattr(dataset, "classes", None)
    if not (isinstance(names, list | tuple) and names and all(isinstance(name, str) for name in names)):
        return None
    if len(names) > 1 and {name.lower() for name in names} <= _SPLITS:
        raise DataError(
            f"the classes {' and '.join(names)} look like splits; read each folder as a data set of its own."
        )
    return list(names)


def held_out(n: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Draw samples for evaluation: the numbers of those left for training, and of those drawn, ascending.

    Raises:
        SettingError: If one of them is empty.
    """
    held = round(share * n)
    if not 0 < held < n:
        raise SettingError(f"test_share={share} of {n} samples leaves a split empty; give another share or a test set.")
    order = torch.randperm(n, generator=seeding.generator(seed, "test split"))
    return order[held:].sort().values, order[:held].sort().values


def check_same_classes(one: Sequence[str] | None, other: Sequence[str] | None) -> None:
    """Check that two sets that belong together name their classes alike, if both have names.

    Raises:
        DataError: If they do not: a number would mean two classes.
    """
    if one and other and one != other:
        raise DataError(
            f"sets that belong together need the same classes in the same order, got {', '.join(one)} and "
            f"{', '.join(other)}."
        )
