"""Files that are whole whenever they are read: written next to the old one, flushed to disk, then put in its place."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lightning_fl.errors import RESUME, DataError


def write(path: Path, content: bytes | memoryview) -> None:
    """Write a file so that a reader finds the old content or the new one, even after a kill or a power cut.

    Args:
        path: The file; its folder is created if needed.  ``NAME.part`` holds the new content until it is whole.
        content: What to write.

    Raises:
        DataError: If it cannot be written; the old file is untouched.
    """
    part = path.with_name(f"{path.name}.part")
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)  # a full disk needs the space
            raise
        _sync_folder(path.parent)


def append(path: Path, content: bytes) -> None:
    """Add to the end of a file; a kill may leave a part of the addition.

    Raises:
        DataError: If it cannot be written.
    """
    with explained(path), path.open("ab") as file:
        file.write(content)


def cut_line(path: Path) -> None:
    """Take from the end of a file what a kill has left of a line.

    Raises:
        DataError: If it cannot be written.
    """
    if path.exists():
        with explained(path), path.open("r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)


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
