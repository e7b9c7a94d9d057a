"""Runs and calls in processes of this machine; see `runner`."""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import connection
from pathlib import Path
from typing import Any

from lightning_fl.network.threads import n_threads, set_threads
from lightning_fl.study.worker import HELD, Run, last_words, work

_LONGEST = 10_000  # characters of an error


class Processes:
    """Workers of this machine, forked from a server that has imported torch and Lightning once.

    Args:
        workers: How many share the cores.
        fresh: Whether each call has a process of its own; otherwise they stay.
    """

    poll: float | None = None  # seconds between two calls of `fetch`
    death = BrokenExecutor  # what a call raises whose worker died

    def __init__(self, workers: int, fresh: bool):
        self.fresh = fresh
        self.begun = max(n_threads() // workers, 1), Path.cwd(), dict(os.environ)
        self.idle, self.busy = list[ProcessPoolExecutor](), dict[Future[Any], ProcessPoolExecutor]()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        """Call a function in a worker."""
        # A pool of one, since the death of a process ends its pool.
        worker = self.idle.pop() if self.idle else ProcessPoolExecutor(1, _context(), _begin, self.begun)
        future = worker.submit(_called, function, arguments)
        self.busy[future] = worker
        return future

    def train(self, run: Run) -> "Future[Any] | None":
        """Train a run; None if another process trains it or has finished it."""
        run.folder.mkdir(parents=True, exist_ok=True)
        return self.submit(work, run)

    def error(self, run: Run, future: "Future[Any]") -> str | None:
        """Say how a run ended, for one without a result; None if another process trains it."""
        try:
            code = future.result()
        except self.death:
            return last_words(run, "killed")
        return None if code == HELD else last_words(run, f"exit code {code}")

    def fetch(self) -> None:
        """Fetch what runs have left by now: it is here."""

    def ended(self, future: "Future[Any]") -> None:
        """Keep a worker for the next call."""
        worker = self.busy.pop(future)
        if self.fresh or isinstance(future.exception(), self.death):
            worker.shutdown(wait=False)
        else:
            self.idle.append(worker)

    def stop(self) -> None:
        """Let runs end after their round, and anything else at once."""
        for worker in self.busy.values():
            for process in [*worker._processes.values()]:
                process.terminate()

    def close(self) -> None:
        """End the workers."""
        for worker in [*self.idle, *self.busy.values()]:
            worker.shutdown(cancel_futures=True)


def _context() -> Any:
    """Choose how workers start: forked from a server that has imported torch, where what it imports can be forked."""
    context: Any = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
    context.set_forkserver_preload([__name__, "lightning_fl.run.command"])
    return context


def _begin(threads: int, place: Path, environment: Mapping[str, str]) -> None:
    """Make a worker like the process that asks, which may have changed since the server started.

    It ends with that process, however that ends: a run after its round, anything else at once.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C reaches the process that asks, which passes it on
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # while nothing is trained
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(place)
    set_threads(threads)


def _called(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        raise _portable(error) from None
    finally:
        parent = multiprocessing.parent_process()
        if parent is not None and not parent.is_alive():  # nobody waits for it
            os._exit(1)


def _portable(error: Exception) -> Exception:
    """An error that reaches the process that asks: one that can be read there, and is no longer than a pipe holds."""
    with suppress(Exception):
        if len(str(error)) <= _LONGEST and str(pickle.loads(pickle.dumps(error))) == str(error):
            return error
    return RuntimeError(f"{type(error).__name__}: {str(error)[:_LONGEST]}")
