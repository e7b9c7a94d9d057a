"""A federation as it is: which client holds which sample, read from a file."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from lightning_fl.errors import DataError
from lightning_fl.partition.base import Partition

_HEADER = ["sample", "client"]


class FromFile(Partition):
    """Read the partition from a CSV file, one row per sample: its number and its client's, both from 0, in any order.

    Samples are numbered as the data set has them.  Every one needs a client: a truncated file is an error, not a
    smaller federation.

    ::

        sample,client
        0,3
        1,0

    Args:
        path: The file, UTF-8.
    """

    def __init__(self, path: str):
        self.path = Path(path)

    def assign(self, targets: Tensor, n_clients: int, n_classes: int, generator: torch.Generator) -> list[Tensor]:
        """Assign every sample to one client; see the base class.

        Raises:
            DataError: If the file is not such a table; the message names the line.
        """
        n_samples, line = len(targets), 1
        owner, lines = [-1] * n_samples, [0] * n_samples
        for line, sample, client in self._rows():
            where = f"{self.path}, line {line}"
            if sample >= n_samples:
                raise DataError(f"{where}: sample {sample} is unknown; the data set has samples 0 to {n_samples - 1}.")
            if client >= n_clients:
                raise DataError(
                    f"{where}: client {client} is out of range 0 to {n_clients - 1}; set federation.n_clients to how "
                    f"many clients the file has."
                )
            if lines[sample]:
                raise DataError(f"{where}: sample {sample} has a client already, in line {lines[sample]}.")
            owner[sample], lines[sample] = client, line
        missing = lines.count(0)
        if missing:
            raise DataError(
                f"{self.path} ends in line {line} without {missing} of {n_samples} samples (first: {lines.index(0)}); "
                f"every sample needs a client."
            )
        clients = torch.tensor(owner)
        return list(clients.argsort(stable=True).split(clients.bincount(minlength=n_clients).tolist()))

    def _rows(self) -> Iterator[tuple[int, int, int]]:
        """Line number, sample and client of every row."""
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise DataError(f"from_file cannot read {self.path}: {error.strerror}.") from error
        try:
            text = content.decode("utf-8-sig")  # Excel begins with a byte order mark
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise DataError(f"{self.path}, line {line}: not UTF-8 text; save the file as CSV in UTF-8.") from error
        for line, row in enumerate(text.split("\n"), 1):
            fields = [field.strip().strip('"') for field in row.split(",")]
            if line == 1:
                if fields != _HEADER:
                    raise DataError(f"{self.path}, line 1: the header must be sample,client, got {_short(row)}.")
            elif row.strip():
                if len(fields) != 2 or not all(_is_number(field) for field in fields):
                    raise DataError(
                        f"{self.path}, line {line}: a row needs two whole numbers, sample,client, got {_short(row)}."
                    )
                yield line, int(fields[0]), int(fields[1])


def _is_number(field: str) -> bool:
    return field.isascii() and field.isdigit() and len(field) <= 18


def _short(row: str) -> str:
    row = row.strip()
    return repr(row if len(row) <= 40 else f"{row[:40]}...")
