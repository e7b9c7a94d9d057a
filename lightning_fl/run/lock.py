"""Let one process at a time use a folder."""

import errno
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from lightning_fl import files
from lightning_fl.errors import SettingError

# Seconds after which a waiting process says what it waits for.
_PATIENCE = 5.0


# How a file system says that it has no locks, as some NFS and FUSE ones do.
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS}
_without: set[Path] = set()  # folders without locks that were spoken of


class BusyError(SettingError):
    """Another process holds the folder."""


def acquired(path: Path, timeout: float = 0.0, **more: Any) -> BaseFileLock:
    """Take a lock that the system releases when its holder ends, however it ends.

    Where the file system has no locks, a file ``NAME.held`` stands for one; a killed holder leaves it.

    Args:
        path: The file to lock.
        timeout: Seconds to wait for another holder; below 0 for ever.
        more: Further settings of `filelock.FileLock`.

    Raises:
        Timeout: If another process holds it for longer.
    """
    lock: BaseFileLock = FileLock(path, **more)
    try:
        lock.acquire(timeout)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        lock = SoftFileLock(f"{path}.held", **more)
        if path.parent not in _without:
            _without.add(path.parent)
            print(
                f"{path.parent} is on a file system without locks ({error.strerror}): while a process uses it, "
                f"{Path(lock.lock_file).name} is there; if one was killed, remove that file.",
                file=sys.stderr,
            )
        lock.acquire(timeout)
    return lock


@contextmanager
def held(folder: Path, wait: bool = False) -> Iterator[None]:
    """Hold an exclusive lock on a folder while training into it or changing what several processes share there.

    The system releases the lock when its holder ends, however it ends.  Nested calls within one thread count as one.

    Args:
        folder: The folder, created if needed.  ``.lock`` stays there; ``.holder`` says who holds it.
        wait: Whether to wait for another holder; a long wait is announced once, on stderr.

    Raises:
        BusyError: If another process holds it and ``wait`` is false; the message says which.
        DataError: If the folder cannot be written.
    """
    note = folder / ".holder"
    with files.explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder.resolve() / ".lock"
        try:
            lock = acquired(path, _PATIENCE if wait else 0.0, is_singleton=True)
        except Timeout:
            if not wait:
                raise BusyError(
                    f"{folder} is in use: {_holder(note)} trains into it; wait until it has ended, or choose another "
                    f"folder (hydra.run.dir=FOLDER)."
                ) from None
            print(f"Waiting for {_holder(note)}, which is busy in {folder} ...", file=sys.stderr)
            lock = acquired(path, -1.0, is_singleton=True)
    try:
        with files.explained(note):
            files.unlinked(note).write_text(f"process {os.getpid()} on {socket.gethostname()}\n")
        yield
    finally:
        if lock.lock_counter == 1:
            note.unlink(missing_ok=True)
        lock.release()


def _holder(note: Path) -> str:
    try:
        return note.read_text().strip() or "another process"
    except OSError:
        return "another process"
