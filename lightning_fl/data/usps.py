"""USPS: images of 16 x 16 pixels of digits on envelopes, 7,291 for training and 2,007 for testing.

Jonathan J. Hull. A Database for Handwritten Text Recognition Research. IEEE Transactions on Pattern Analysis and
Machine Intelligence, 1994.  In the LIBSVM collection's files.

Class z is digit z (in the files z + 1).  Memory: 10 MB; pixels stay float32, as a byte would round them.
"""

from array import array
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torchvision.datasets import USPS as TorchvisionUSPS  # noqa: N811

from lightning_fl.data._files import lines, need_every_class
from lightning_fl.data.base import FederatedDataModule
from lightning_fl.data.fetch import ensure, torchvision_mirrors, verify
from lightning_fl.errors import DataError
from lightning_fl.samples import Samples

CHECKSUMS = {"usps.bz2": "ec16c51db3855ca6c91edd34d0e9b197", "usps.t.bz2": "8ea070ee2aca1ac39742fdd1ef5ed118"}
_INDICES = [str(i) for i in range(1, 257)]


class Usps(FederatedDataModule):
    """USPS, from torchvision's mirror or files that the user puts in place; see the base class for the other settings.

    The format is LIBSVM's: ``label 1:v1 2:v2 ... 256:v256`` per line, label 1 to 10, values in [-1, 1], which are
    mapped to [0, 1].

    Args:
        root: Folder of data sets.  The files are in ``root/USPS``: LIBSVM's usps.bz2 and usps.t.bz2, or plain ones of
            that format, usps and usps.t, which take precedence.
        n_train: Images that the training file must hold.
        n_test: Images that the test file must hold.

    Note:
        The FRPG paper has 8,000 training and 3,000 test images, from another collection of 1,100 per class: to use that
        split, write it to plain files and set both numbers.
    """

    def __init__(self, root: str = "data", n_train: int = 7291, n_test: int = 2007, **settings: Any):
        super().__init__(**settings)
        self.folder = Path(root) / "USPS"
        self.n_train = n_train
        self.n_test = n_test

    def prepare_data(self) -> None:
        """Fetch the files unless they are there, packed or plain.

        Raises:
            DataError: If a packed file is corrupt or the source does not answer.
        """
        if not self._packed:
            return
        sources = {"torchvision's mirror": torchvision_mirrors(_download, "")}
        ensure("USPS", self.folder, self._packed, sources, "the plain files usps and usps.t there, or data=mnist_5k")

    @property
    def _paths(self) -> list[Path]:
        """The training and the test file: the plain one where it exists."""
        packed = [self.folder / name for name in CHECKSUMS]
        return [path.with_suffix("") if path.with_suffix("").exists() else path for path in packed]

    @property
    def _packed(self) -> dict[str, str]:
        """Checksums of the packed files that no plain one replaces."""
        return {path.name: CHECKSUMS[path.name] for path in self._paths if path.name in CHECKSUMS}

    def load(self) -> tuple[Samples, Samples]:
        """Load both splits as (N, 1, 16, 16) numbers in [0, 1].

        Raises:
            DataError: If a file is missing, damaged or of another format; the message names file and line.
        """
        train, test = self._paths
        verify(self.folder, self._packed)
        return _read(train, self.n_train), _read(test, self.n_test)


def _download(root: str, download: bool) -> None:
    for train in (True, False):
        TorchvisionUSPS(root, train=train, download=download)


def _read(path: Path, size: int) -> Samples:
    labels, values = [], array("f")
    for number, line in enumerate(lines(path), 1):
        try:
            label, *features = line.split() or ["nothing"]
            indices = [feature.split(":")[0] for feature in features]
            row = [float(feature.split(":")[1]) for feature in features]
            digit = int(label) - 1
        except (ValueError, IndexError) as error:
            raise DataError(f"{path}, line {number}: is not LIBSVM's label 1:v1 2:v2 ...: {error}.") from error
        if not 0 <= digit <= 9 or indices != _INDICES or not all(-1 <= value <= 1 for value in row):
            raise DataError(
                f"{path}, line {number}: needs a label from 1 to 10 and features 1 to 256 in [-1, 1], got label "
                f"{label} and {len(row)} features from {min(row, default=0)} to {max(row, default=0)}."
            )
        labels.append(digit)
        values.extend(row)
    if len(labels) != size:
        raise DataError(
            f"{path} needs {size:,} images, got {len(labels):,}; it is cut short, swapped, or another split: then set "
            f"n_train and n_test."
        )
    need_every_class(path, labels, range(10))
    pixels = torch.from_numpy(np.array(values)).view(-1, 1, 16, 16)
    if pixels.min() >= 0:
        raise DataError(f"{path} has no negative value; values must be scaled to [-1, 1], as LIBSVM's are.")
    return Samples((pixels + 1) / 2, torch.tensor(labels), 10)
