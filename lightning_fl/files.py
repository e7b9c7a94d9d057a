"""Files that are whole whenever they are read: written next to the old one, flushed to disk, then put in its place."""

import csv
import io
import os
import pickle
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning_fl.errors import RESUME, DataError


def write(path: Path, content: bytes | memoryview | str) -> None:
    """Write a file so that a reader finds the old content or the new one, even after a kill or a power cut.

    Args:
        path: The file; its folder is created if needed.  ``NAME.part`` holds the new content until it is whole.
        content: What to write; text as UTF-8, in which names of files that are none are escaped.

    Raises:
        DataError: If it cannot be written; the old file is untouched.
    """
    if isinstance(content, str):
        content = content.encode(errors="backslashreplace")
    part = path.with_name(f"{path.name}.part")
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with unlinked(part).open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)  # a full disk needs the space
            raise
        _sync_folder(path.parent)


def unlinked(path: Path) -> Path:
    """Remove a link where a file will be written: a folder may be a stranger's, and point to a file of one's own."""
    if path.is_symlink():
        path.unlink()
    return path


def rows(path: Path, who: str) -> tuple[list[str], list[dict[str, str]]]:
    """Read a CSV file with a header, in UTF-8 with or without a byte order mark, as spreadsheets write it.

    Args:
        path: The file.
        who: Who reads it, for the error.

    Returns:
        The columns, and each row by its columns; a cell that a row lacks is None.

    Raises:
        DataError: If it cannot be read.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            csv.field_size_limit(2**31 - 1)  # of a text; Python's own is 131,072
            table = csv.DictReader(file)
            columns, found = list(table.fieldnames or []), list(table)
    except OSError as error:
        raise DataError(f"{who} cannot read {path}: {error.strerror}.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{who} cannot read {path}: not a CSV file in UTF-8 ({error}).") from error
    if twice := [name for name in columns if name and columns.count(name) > 1]:
        raise DataError(f"{who} cannot read {path}: it has two columns {twice[0]}; rename one.")
    for number, row in enumerate(found, 1):
        if None in row:
            raise DataError(
                f"{who} cannot read {path}: row {number} has {len(columns) + len(row[None])} cells, the header "
                f"{len(columns)}; put a text that holds a comma in quotes."
            )
    return columns, found


def save(path: Path, content: Any) -> None:
    """Write tensors and plain Python values as `torch.save` does; see `write`."""
    import torch  # not earlier: commands report a wrong name before torch is imported

    buffer = io.BytesIO()
    torch.save(content, buffer)
    write(path, buffer.getbuffer())


def load(
    path: str | Path,
    map_location: Any = "cpu",
    weights_only: bool = True,
    advice: str = "put a copy in its place, or move it away to begin again",
) -> Any:
    """Read what `save` has written, after verifying its checksums, which torch does not.

    Args:
        path: The file.
        map_location: The device of the tensors.
        weights_only: Refuse anything but tensors and plain Python values; otherwise reading may run code.
        advice: What to do about a file that cannot be read, for the error.

    Raises:
        DataError: If it is not there, damaged, or holds anything else.
    """
    import torch

    try:
        with zipfile.ZipFile(path) as archive:
            # Torch would take whatever the memory holds for the content of what is marked as a folder.
            if archive.testzip() is not None or any(member.external_attr for member in archive.infolist()):
                raise zipfile.BadZipFile
        return torch.load(path, map_location=map_location, weights_only=weights_only)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    except Exception as error:  # archive and pickle have errors of their own
        why = "it is empty, cut, changed or not a file of torch.save"
        if isinstance(error, pickle.UnpicklingError):  # its checksums say that it was written like this
            why = "it holds more than tensors and plain Python values"
        raise DataError(f"{path} cannot be read: {why}; {advice}.") from error


def append(path: Path, content: bytes) -> None:
    """Add to the end of a file; a kill may leave a part of the addition.

    Raises:
        DataError: If it cannot be written.
    """
    with explained(path):
        if path.is_symlink():
            raise DataError(f"{path} is a link, perhaps to what is not the run's; put the file itself in its place.")
        with path.open("ab") as file:
            file.write(content)


def sync(path: Path) -> None:
    """Wait until a file is on the disk.

    Raises:
        DataError: If the disk reports an error.
    """
    with explained(path), path.open("r+b") as file:
        os.fsync(file.fileno())


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn a failed write into a one-line error that names the file."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{path} cannot be written: {error.strerror or error}; fix that, then run this again; of a run, {RESUME}."
        ) from error


def _sync_folder(folder: Path) -> None:
    """Flush a new name to the disk, if the system can."""
    if os.name != "posix":
        return
    held = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(held)
    finally:
        os.close(held)
