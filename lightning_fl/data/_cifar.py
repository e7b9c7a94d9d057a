"""The pickled batches in which Alex Krizhevsky published CIFAR-10 and CIFAR-100."""

import pickle
import warnings
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor


def read(paths: Iterable[Path], labels: str) -> tuple[Tensor, Tensor]:
    """Read images as (N, 3, 32, 32) bytes, and their labels.

    Args:
        paths: The batches.  Unpickling runs what a file says: verify their checksums first.
        labels: Which entry of a batch holds the labels.
    """
    images, targets = [], []
    for path in paths:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "dtype\\(\\): align")  # numpy 2.4.0 to 2.4.4 on old pickles
            batch = pickle.load(file, encoding="latin1")
        images.append(torch.from_numpy(batch["data"]).view(-1, 3, 32, 32))
        targets += batch[labels]
    return torch.cat(images), torch.tensor(targets)
