"""What runs measured: files with a line per run, to which several processes may add."""

import csv
import io
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, Timeout

from lightning_fl import files
from lightning_fl.errors import DataError
from lightning_fl.run.lock import acquired, held

Record = dict[str, Any]

_WHOLE = {"byzantine", "seed", "twin", "classes"}
_WORDS = {"row", "column", "rule", "attack", "skew", "status", "reason", "recall", "version", "identity", "key"}


class Store:
    """The records of a study.

    Args:
        path: The file.
        fields: Its columns.  ``identity`` is the run's, ``key`` what `keys` calls the cell for which it was trained.
    """

    def __init__(self, path: Path, fields: Sequence[str]):
        self.path, self.fields, self.rows, self._size = path, fields, list[Record](), 0

    def refresh(self) -> list[Record]:
        """Read the file again if it has changed, and list its records."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if self._size != size:
            self._size, self.rows = size, read(self.path, self.fields)
        return self.rows

    def begin(self) -> None:
        """Give the file its columns, if it has none or others."""
        with held(self.path.parent, wait=True):
            head = _line(dict(zip(self.fields, self.fields, strict=True)), self.fields)
            if self.path.exists():
                with self.path.open("rb") as written:
                    if written.read(len(head)) == head:
                        return
            write(self.path, self.fields, read(self.path, self.fields))

    def add(self, row: Record) -> None:
        """Add a record at the end."""
        with self.path.open("rb") as written:
            written.seek(-1, os.SEEK_END)
            cut = written.read() != b"\n"  # by a kill
        added = b"\n" * cut + _line(row, self.fields)
        files.append(self.path, added)
        self.rows.append(dict.fromkeys(self.fields) | row)
        self._size += len(added)  # unless another process has added, too

    def claim(self, key: str) -> BaseFileLock | None:
        """Claim a cell until `free`; None if another process trains it."""
        path = self.path.parent / "playing" / f"{key}.lock"
        path.parent.mkdir(exist_ok=True)
        try:
            return acquired(path, thread_local=False)
        except Timeout:
            return None


def free(lock: BaseFileLock) -> None:
    """Give up a claim."""
    with suppress(PermissionError):  # where an open file cannot be removed
        Path(lock.lock_file).unlink(missing_ok=True)
    lock.release()


def find(paths: Iterable[Path], fields: Sequence[str], identities: Collection[str]) -> dict[str, Record]:
    """Find what runs have measured, by identity; where several files or lines have one, its first record."""
    found: dict[str, Record] = {}
    for path in paths:
        text = path.read_bytes() if path.exists() else b""
        if any(identity.encode() in text for identity in identities):  # typing thousands of lines takes longer
            for row in read(path, fields):
                if row["identity"] in identities:
                    found.setdefault(row["identity"], row)
    return found


def read(path: Path, fields: Sequence[str]) -> list[Record]:
    """Read records, numbers as numbers; none where there is no file, or of a line that is damaged.

    Raises:
        DataError: If the file has other columns, as after a spreadsheet has saved it.
    """
    if not path.exists():
        return []
    # Line by line: one that a kill has cut inside quotes would take the next ones with it.
    text = path.read_text("utf-8-sig", errors="replace")
    head, *lines = [next(csv.reader([line]), []) for line in text.splitlines() or ["identity"]]
    if "identity" not in head:
        raise DataError(f"{path} has no column identity; restore it, remove it, or give another --folder.")
    rows = [_typed(dict(zip(head, line, strict=True)), fields) for line in lines if len(line) == len(head)]
    return [row for row in rows if row is not None and (row["identity"] or row["status"] == "refused")]


def write(path: Path, fields: Sequence[str], rows: Iterable[Record]) -> None:
    """Write records, numbers to six digits."""
    files.write(path, content(fields, rows))


def content(fields: Sequence[str], rows: Iterable[Record]) -> bytes:
    """Give what `write` writes."""
    head = dict(zip(fields, fields, strict=True))
    return b"".join(_line(row, fields) for row in [head, *rows])


def _typed(row: Mapping[str, str], fields: Sequence[str]) -> Record | None:
    words = _WORDS | (row.keys() - {*fields})  # a column of somebody's own
    try:
        return dict.fromkeys(fields) | {
            key: text if key in words else None if text == "" else _whole(text) if key in _WHOLE else float(text)
            for key, text in row.items()
        }
    except ValueError:
        return None


def _whole(text: str) -> int:
    """Read a whole number, which a spreadsheet may have written as 10.0."""
    number = float(text)
    if not number.is_integer():
        raise ValueError(text)
    return int(number) if "." in text or "e" in text.lower() else int(text)


def _line(row: Record, fields: Sequence[str]) -> bytes:
    text = io.StringIO(newline="")
    values = (row.get(field) for field in fields)
    csv.writer(text, lineterminator="\n").writerow(f"{v:.6g}" if isinstance(v, float) else v for v in values)
    return text.getvalue().encode(errors="backslashreplace")
