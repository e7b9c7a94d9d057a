"""Yann LeCun's IDX format, which MNIST and its replacements share."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torchvision.datasets.mnist import read_image_file, read_label_file

from lightning_fl.data.fetch import verify
from lightning_fl.samples import Samples


def read(
    folder: Path, checksums: Mapping[str, str], mean: tuple[float], std: tuple[float], standardize: bool
) -> tuple[Samples, Samples]:
    """Read the training and test images of ten classes as (N, 1, 28, 28) bytes.

    Args:
        folder: Where the four files are.
        checksums: Checksums of the files, by name.
        mean: Mean of the training images, scaled to [0, 1].
        std: Likewise.
        standardize: Whether a batch is standardised by them; otherwise it is in [0, 1].

    Raises:
        DataError: If a file is missing or corrupt.
    """
    verify(folder, checksums)

    def split(name: str) -> Samples:
        images = read_image_file(str(folder / f"{name}-images-idx3-ubyte")).unsqueeze(1)
        labels = read_label_file(str(folder / f"{name}-labels-idx1-ubyte")).to(torch.int64)
        return Samples(images, labels, 10, mean, std) if standardize else Samples(images, labels, 10)

    return split("train"), split("t10k")
