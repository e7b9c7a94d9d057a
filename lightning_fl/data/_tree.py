"""Image files in folders named after their split and class, decoded once into one file of bytes."""

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_fl.data._files import picture
from lightning_fl.errors import DataError

SPLITS = ("train", "test")
_SUFFIXES = {".jpg", ".jpeg", ".png"}


class ImageTree:
    """Colour images ``FOLDER/{train,test}/CLASS/*.jpg``, of one size; also jpeg and png files, others are ignored.

    There are at least as many to train on as to test on.

    Args:
        folder: The tree.
        classes: Names of the folders, in the order of their numbers.
        size: Height and width of every image in pixels.
        cache: Where to keep the decoded images.
    """

    def __init__(self, folder: Path, classes: Sequence[str], size: int, cache: Path):
        self.folder = folder
        self.classes = classes
        self.size = size
        self.cache = cache

    def decode(self) -> None:
        """Decode the images unless the tree (names, lengths and dates of its files) is unchanged since the last time.

        Raises:
            DataError: If a folder or file is not what it should be; nothing is kept then.
        """
        splits = {split: self._files(split) for split in SPLITS}
        if len(splits["train"]) < len(splits["test"]):
            raise DataError(
                f"{self.folder} has {len(splits['train']):,} training and {len(splits['test']):,} test images; are "
                f"train and test swapped?"
            )
        kept = self._kept(splits)
        if kept.exists():
            return
        arrays: dict[str, Any] = {}
        for split, files in splits.items():
            arrays[f"{split}_images"] = images = np.empty((len(files), 3, self.size, self.size), np.uint8)
            for image, (entry, _) in zip(images, files, strict=True):
                image[...] = self._image(entry.path).transpose(2, 0, 1)
            arrays[f"{split}_labels"] = np.array([label for _, label in files])
        self.cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.cache, prefix=".decode-") as scratch:
            np.savez(Path(scratch) / kept.name, **arrays)
            os.replace(Path(scratch) / kept.name, kept)
        print(f"{self.folder}: decoded {sum(map(len, splits.values())):,} images into {kept}")

    def load(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Load images (N, 3, size, size) and labels of both splits, which `decode` has put in place.

        Raises:
            DataError: If the decoded images are missing or damaged.
        """
        kept = self._kept({split: self._files(split) for split in SPLITS})
        try:
            with kept.open("rb") as file, np.load(file) as arrays:  # zip files check themselves (CRC-32)
                found = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
            train, test = ((found[f"{split}_images"], found[f"{split}_labels"]) for split in SPLITS)
        except FileNotFoundError as error:
            raise DataError(f"{kept} is missing; call prepare_data first.") from error
        except (OSError, EOFError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile) as error:
            raise DataError(f"{kept} is damaged ({error}); delete it to have {self.folder} decoded again.") from error
        return train, test

    def _files(self, split: str) -> list[tuple["os.DirEntry[str]", int]]:
        """List every image file of a split with its class, in order."""
        files: list[tuple[os.DirEntry[str], int]] = []
        for label, name in enumerate(self.classes):
            folder = self.folder / split / name
            found: list[os.DirEntry[str]] = []
            if folder.is_dir():
                with os.scandir(folder) as entries:
                    found = [entry for entry in entries if Path(entry.name).suffix.lower() in _SUFFIXES]
            if not found:
                raise DataError(
                    f"{folder} holds no images; a tree has a folder for each of {', '.join(self.classes)} in train and "
                    f"in test."
                )
            files += [(entry, label) for entry in sorted(found, key=lambda entry: entry.name)]
        return files

    def _kept(self, splits: Mapping[str, Sequence[tuple["os.DirEntry[str]", int]]]) -> Path:
        """Name the file that keeps the decoded images of these files."""
        listing = hashlib.sha256()
        for split, files in splits.items():
            for entry, label in files:
                stat = entry.stat()
                listing.update(repr((split, label, entry.name, stat.st_size, stat.st_mtime_ns)).encode())
        return self.cache / f"tree-{listing.hexdigest()[:16]}.npz"

    def _image(self, path: str) -> np.ndarray:
        pixels = np.asarray(picture(path))
        if pixels.shape[:2] != (self.size, self.size):
            raise DataError(
                f"{path} needs {self.size} x {self.size} pixels, got {pixels.shape[1]} x {pixels.shape[0]}."
            )
        return pixels
