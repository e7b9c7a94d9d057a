"""Locks on folders that several processes use."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


def claim(folder: Path) -> TextIO | None:
    """Lock a folder for as long as the file, or a child's copy of it, stays open; None if it is locked already.

    The system gives the lock back when its holders end, however they end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / "lock").open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    file.truncate(0)
    file.write(f"{os.getpid()} on {socket.gethostname()}\n")
    file.flush()
    return file


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait until no other process is in here with the same folder."""
    folder.mkdir(parents=True, exist_ok=True)
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)  # gives the lock back
