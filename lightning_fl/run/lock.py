"""Let one process at a time use a folder."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from lightning_fl import files
from lightning_fl.errors import SettingError

# Seconds after which a waiting process says what it waits for.
_PATIENCE = 5.0


class BusyError(SettingError):
    """Another process holds the folder."""


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
        lock = FileLock(folder.resolve() / ".lock", is_singleton=True)
        try:
            lock.acquire(timeout=_PATIENCE if wait else 0)
        except Timeout:
            if not wait:
                raise BusyError(
                    f"{folder} is in use: {_holder(note)} trains into it; wait until it has ended, or choose another "
                    f"folder (hydra.run.dir=FOLDER)."
                ) from None
            print(f"Waiting for {_holder(note)}, which is busy in {folder} ...", file=sys.stderr)
            lock.acquire()
    try:
        with files.explained(note):
            note.write_text(f"process {os.getpid()} on {socket.gethostname()}\n")
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
