"""Where the matrix of a round's updates lies: in memory, or in a file where it exceeds the memory.

The file is mapped into memory: the system keeps as much of it there as fits and writes the rest to the disk.  Every
number is the one that memory would hold.  The file never has a name, so that nothing is left of it, however the run
ends.

Memory is used again from round to round: to touch fresh pages takes a twentieth of a round of large updates.
"""

import mmap
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lightning_fl.errors import DataError, MissingError, SettingError


class Storage:
    """Makes matrices in memory or, each in a file of its own, in a folder.

    Args:
        folder: The folder, on a disk.  None: memory.
    """

    def __init__(self, folder: str | Path | None = None):
        self.folder = None if folder is None else Path(folder)
        self._kept: list[np.ndarray] = []

    def check(self, numbers: int, dtype: torch.dtype, device: torch.device) -> None:
        """Check that the folder has room, before any training.

        Args:
            numbers: How many numbers a round keeps there.
            dtype: Their type.
            device: Where the round is computed.

        Raises:
            MissingError: If it has not, or cannot be written.
            SettingError: If no CPU computes the round.
        """
        if self.folder is None:
            return
        if device.type != "cpu":
            raise SettingError(
                f"updates in a file are computed on by a CPU, got {device.type}; set trainer.accelerator=cpu, or leave "
                f"updates_dir out."
            )
        if not (self.folder.is_dir() and os.access(self.folder, os.W_OK)):
            raise MissingError(
                f"updates_dir needs a folder that can be written, got {self.folder}; create it, or choose another."
            )
        needed, free = numbers * dtype.itemsize, shutil.disk_usage(self.folder).free
        if needed > free:
            raise MissingError(
                f"the updates of a round need {_size(needed)} in updates_dir, got {_size(free)} free in {self.folder}; "
                f"make room, choose another folder, or lower federation.n_clients."
            )

    def matrix(self, n: int, d: int, like: Tensor) -> Tensor:
        """Make room for n rows of d numbers, which hold nothing of use yet.

        Args:
            n: How many rows.
            d: How long they are.
            like: Has their type and device.

        Raises:
            DataError: If the disk is full.
        """
        if self.folder is None or not n * d:
            return self._in_memory(n, d, like)
        size = n * d * like.dtype.itemsize
        try:
            with tempfile.TemporaryFile(dir=self.folder) as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size)  # a full disk shows now, not by a signal later
                else:
                    file.truncate(size)
                content = mmap.mmap(file.fileno(), size)
        except OSError as error:
            raise DataError(
                f"the updates of a round need {_size(size)} in updates_dir, which {self.folder} has no longer: "
                f"{error.strerror or error}; make room, then resume the run from its last checkpoint."
            ) from error
        return torch.frombuffer(content, dtype=like.dtype).view(n, d)

    def release(self) -> None:
        """Give back memory that would serve the next round."""
        self._kept.clear()

    def _in_memory(self, n: int, d: int, like: Tensor) -> Tensor:
        """Reuse the smallest block that suffices and that nobody refers to any more, or allocate a new one."""
        if like.device.type != "cpu" or not n * d:  # torch keeps a GPU's memory
            return like.new_empty(n, d)
        kept, size = self._kept, n * d * like.dtype.itemsize
        # A tensor that is made from an array refers to it, as long as a view of it is left.
        free = sorted((len(kept[i]), i) for i in range(len(kept)) if sys.getrefcount(kept[i]) <= 2)
        found = next((i for length, i in free if length >= size), None)
        if found is None:
            if free:
                del kept[free[0][1]]
            found = len(kept)
            kept.append(torch.empty(size, dtype=torch.uint8).numpy())
        return torch.from_numpy(kept[found])[:size].view(like.dtype).view(n, d)


def _size(count: int) -> str:
    return f"{count / 1e9:.3g} GB"
