"""Any classification set of torchvision, by its name there.

Memory: a byte per pixel and channel of all its images; 55 MB for KMNIST.
"""

from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from torchvision import datasets
from torchvision.transforms import Resize

from lightning_fl import seeding
from lightning_fl.data._files import picture
from lightning_fl.data._items import check_same_classes, read
from lightning_fl.data.base import FederatedDataModule
from lightning_fl.errors import DataError, SettingError
from lightning_fl.ranges import PositiveInt
from lightning_fl.samples import Samples


class Torchvision(FederatedDataModule):
    """Images and classes as torchvision has them; see the base class for the other settings.

    Classes are numbered from 0 in the order of torchvision's numbers.  A set without a test split gives a fifth of its
    samples, drawn by ``partition_seed``, for evaluation.  An ImageFolder has one if it has a folder train and a folder
    test, val or valid, each with a folder for every class.

    Args:
        dataset: Its name in ``torchvision.datasets``, such as KMNIST, SVHN, EuroSAT or FakeData.
        root: Folder of data sets, as torchvision uses it.
        side: Pixels of a side that images are resized to.  None: they stay as they are, and must be of one shape.
        options: What else torchvision's class takes, such as ``split: balanced`` for EMNIST.
        standardize: Whether each channel is standardised by mean and deviation of the training pixels; otherwise
            pixels are in [0, 1].

    Raises:
        SettingError: If torchvision has no such set.
    """

    def __init__(
        self,
        dataset: str = "KMNIST",
        root: str = "data",
        side: PositiveInt | None = None,
        options: Mapping[str, Any] | None = None,
        standardize: bool = True,
        eval_batch_size: PositiveInt = 1000,
        **settings: Any,
    ):
        super().__init__(eval_batch_size=eval_batch_size, **settings)
        kind = getattr(datasets, dataset, None)
        if not (isinstance(kind, type) and issubclass(kind, datasets.VisionDataset)):
            raise SettingError(f"data.dataset is the name of a class in torchvision.datasets, got {dataset!r}.")
        self.dataset = dataset
        self.root = root
        self.side = side
        self.options = dict(options or {})
        self.standardize = standardize
        self._kind: Any = kind

    def prepare_data(self) -> None:
        """Let torchvision fetch what is missing.

        Raises:
            DataError: If it cannot.
        """
        self._splits(download=True)

    def load(self) -> tuple[Samples, Samples]:
        """Load both splits as bytes.

        Raises:
            DataError: If the set cannot be read, is not one of images and classes, or tests on other classes.
        """
        sets = [read(split) for split in self._splits(download=False) if split is not None]
        inputs, targets, _, classes = sets[0]
        if len(sets) == 1:
            order = torch.randperm(len(targets), generator=seeding.generator(self.partition_seed, "test split"))
            held, left = order[: len(order) // 5].sort().values, order[len(order) // 5 :].sort().values
            test, (inputs, targets) = (inputs[held], targets[held]), (inputs[left], targets[left])
        else:
            check_same_classes(classes, sets[1].classes)
            test = (sets[1].inputs, sets[1].targets)
        if inputs.dtype != torch.uint8 or inputs.dim() != 4 or test[0].shape[1:] != inputs.shape[1:]:
            raise DataError(
                f"{self.dataset} is not a set of images of one shape, got {tuple(inputs.shape[1:])} of {inputs.dtype} "
                f"and {tuple(test[0].shape[1:])}; set data.side to resize them, or choose another set."
            )
        numbers = targets.unique()
        strangers = test[1][~torch.isin(test[1], numbers)]
        if len(strangers):
            raise DataError(f"{self.dataset} tests on class {strangers[0]}, which has no training sample.")
        if classes is not None and numbers[-1] < len(classes):
            self.class_names = [classes[z] for z in numbers]
        found = scaling(inputs) if self.standardize else ()
        return tuple(  # type: ignore[return-value]
            Samples(x, torch.searchsorted(numbers, y), len(numbers), *found) for x, y in [(inputs, targets), test]
        )

    def _splits(self, download: bool) -> tuple[Dataset[Any], Dataset[Any] | None]:
        """Make torchvision's training and test sets."""
        settings: dict[str, Any] = dict(self.options)
        takes = signature(self._kind).parameters
        passed_on = "kwargs" in takes and issubclass(self._kind, datasets.MNIST)  # to which EMNIST and QMNIST pass them
        if "root" in takes:
            settings["root"] = self.root
        if ("download" in takes or passed_on) and self._kind is not datasets.FakeData:
            settings["download"] = download
        if self.side is not None:
            settings["transform"] = Resize((self.side, self.side))
        try:
            if "train" in takes or passed_on:
                return self._kind(**settings, train=True), self._kind(**settings, train=False)
            if "split" in takes and "split" not in settings:
                return self._kind(**settings, split="train"), self._named(settings, ("test", "val", "valid"))
            if self._kind is datasets.ImageFolder:
                return self._folders(settings | {"loader": picture})
            return self._kind(**settings), None
        except (SettingError, DataError):
            raise
        except Exception as error:  # torchvision and the network may raise anything
            said = (str(error).strip().splitlines() or [""])[0]
            if self._kind is datasets.ImageFolder:
                raise DataError(
                    f"an ImageFolder needs a folder of CLASS/*.png, or of train/CLASS/*.png and test/CLASS/*.png, got "
                    f"{self.root}: {said}; correct data.root."
                ) from error
            raise DataError(
                f"torchvision could not make {self.dataset} from {self.root}: {type(error).__name__}: {said}; put its "
                f"files there (or go online), check data.options, or use data=mnist_5k, which is embedded."
            ) from error

    def _folders(self, settings: dict[str, Any]) -> tuple[Dataset[Any], Dataset[Any] | None]:
        """Make the sets of an ImageFolder's split folders, or the one of its classes."""
        splits = [Path(self.root, name) for name in ("train", "test", "val", "valid") if Path(self.root, name).is_dir()]
        if [path.name for path in Path(self.root).glob("*/")] == ["train"]:  # none to test with
            return self._kind(**settings | {"root": str(splits[0])}), None
        if len(splits) < 2 or splits[0].name != "train":
            return self._kind(**settings), None
        train, test = (self._kind(**settings | {"root": str(folder)}) for folder in splits[:2])
        return train, test

    def _named(self, settings: Mapping[str, Any], names: tuple[str, ...]) -> Dataset[Any]:
        """Make the set with the first of these splits that exists."""
        for name in names[:-1]:
            try:
                found: Dataset[Any] = self._kind(**settings, split=name)
            except ValueError:  # no such split
                continue
            return found
        last: Dataset[Any] = self._kind(**settings, split=names[-1])
        return last


def scaling(inputs: torch.Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Compute mean and deviation of each channel's pixels in [0, 1], from counts of the 256 values."""
    values = torch.arange(256, dtype=torch.float64) / 255
    means, deviations = [], []
    for channel in inputs.transpose(0, 1):
        shares = channel.flatten().bincount(minlength=256).double() / channel.numel()
        mean = (shares @ values).item()
        means.append(mean)
        deviations.append(max((shares @ (values - mean).square()).sqrt().item(), 1 / 255))
    return tuple(means), tuple(deviations)
