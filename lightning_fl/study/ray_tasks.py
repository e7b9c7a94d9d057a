"""Runs and calls as tasks of Ray, on this machine or on a cluster; see `runner`.

A task trains in a folder of its own, wherever Ray puts it, so no file system need be shared.  After each checkpoint it
hands its files to an actor in the cluster, and the caller fetches them into the run's folder.  When a worker dies, Ray
starts the task again, which goes on from what the actor has.  When the caller dies, the same command goes on from what
it had fetched.
"""

import os
import signal
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import replace
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import Any

from lightning_fl import files
from lightning_fl.errors import SettingError, install
from lightning_fl.network.threads import set_threads
from lightning_fl.run.lock import BusyError, held
from lightning_fl.run.saved import last_checkpoint
from lightning_fl.study import worker
from lightning_fl.study.worker import Run, last_words
from lightning_fl.text import said

Files = dict[str, bytes]

_POLL = 1.0  # seconds between two looks at a run's checkpoint, and between two fetches
_RETRIES = 5  # times that a call goes on after its worker has died
_PATIENCE = 300.0  # seconds for runs that were told to stop, which end after their round


def read_files(folder: Path) -> Files:
    """Read a run's files, the checkpoint first: what others record holds at least its rounds.

    Args:
        folder: The run's.

    Returns:
        Contents by path; hidden files and unfinished ones are left out.
    """
    found: Files = {}
    checkpoint = last_checkpoint(folder)
    for path in [checkpoint, *sorted(folder.rglob("*"))]:
        name = path.relative_to(folder).as_posix()
        if name not in found and path.is_file() and not path.name.startswith(".") and path.suffix != ".part":
            with suppress(FileNotFoundError):  # replaced or removed just now
                found[name] = path.read_bytes()
    return found


def write_files(folder: Path, found: Files) -> None:
    """Write a run's files, the checkpoint after the records and the summary last.

    Args:
        folder: The run's.
        found: What `read_files` gave.

    Raises:
        DataError: If one cannot be written.
    """
    late = [last_checkpoint(folder).relative_to(folder).as_posix(), "summary.json"]
    for name in sorted(found, key=lambda name: late.index(name) if name in late else -1):
        files.write(folder / name, found[name])


class Keeper:
    """Keeps in the cluster what each run has left so far: an actor of Ray."""

    def __init__(self) -> None:
        self.kept: dict[str, Files] = {}
        self.fresh: set[str] = set()

    def put(self, name: str, found: Files) -> None:
        """Keep what a run has left by now."""
        self.kept[name] = found
        self.fresh.add(name)

    def get(self, name: str) -> Files | None:
        """Give what a run has left; None if nothing."""
        return self.kept.get(name)

    def take(self) -> dict[str, Files]:
        """Give what is new since the last call."""
        fresh = {name: self.kept[name] for name in self.fresh}
        self.fresh.clear()
        return fresh

    def forget(self, name: str) -> None:
        """Forget a run that has ended."""
        self.kept.pop(name, None)
        self.fresh.discard(name)


def work(run: Run, keeper: Any, begun: Files) -> int:
    """Train one run in a folder of its own: a task of Ray.

    Args:
        run: The run.
        keeper: The actor, which has all its files in the end.
        begun: The run's files so far, as the caller has them.

    Returns:
        The exit code of a command.
    """
    import ray

    name = run.folder.name
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, name)
        folder.mkdir()
        write_files(folder, ray.get(keeper.get.remote(name)) or begun)
        ended = threading.Event()
        sender = threading.Thread(target=_send, args=(name, folder, keeper, ended), daemon=True)
        sender.start()
        try:
            return worker.work(replace(run, folder=folder))
        finally:
            ended.set()
            sender.join()
            ray.get(keeper.put.remote(name, read_files(folder)))


def _send(name: str, folder: Path, keeper: Any, ended: threading.Event) -> None:
    """Hand a run's files to the keeper after each checkpoint, or after several."""
    import ray

    sent, checkpoint = None, last_checkpoint(folder)
    while not ended.wait(_POLL):
        with suppress(FileNotFoundError, ray.exceptions.RayError):
            written = checkpoint.stat().st_mtime_ns
            if written != sent:
                ray.get(keeper.put.remote(name, read_files(folder)))
                sent = written


def called(function: Callable[..., Any], arguments: tuple[Any, ...], threads: int, place: str) -> Any:
    """Call a function like the process that asks: in its working folder, where that exists."""
    if Path(place).is_dir():
        os.chdir(place)
    set_threads(threads)
    return function(*arguments)


class Tasks:
    """Tasks of Ray, in place of `processes.Processes`.

    Args:
        workers: How many share the cluster's cores and GPUs.
        fresh: Whether each call has a process of its own; a run needs one.
        address: Address of the cluster, such as ray://HOST:10001.  None: the one that Ray finds, or this machine.

    Raises:
        SettingError: If there is no Ray or no such cluster.
    """

    poll = _POLL

    def __init__(self, workers: int, fresh: bool, address: str | None):
        self.ray = _connect(address)
        told = self.ray.exceptions
        self.death = (told.WorkerCrashedError, told.OutOfMemoryError, told.NodeDiedError)
        self.cores, gpus = shares(self.ray.cluster_resources(), workers)
        limits = {"max_calls": 1} if fresh else {}
        self.task = self.ray.remote(num_cpus=self.cores, num_gpus=gpus, max_retries=_RETRIES, **limits)(called)
        self.keeper = self.ray.remote(num_cpus=0)(Keeper).remote() if fresh else None
        self.active: dict[Future[Any], Any] = {}
        self.folders: dict[str, tuple[Path, ExitStack]] = {}  # of runs, with the locks on them

    def submit(self, function: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        """Call a function in a task."""
        task = self.task.options(name=function.__name__)
        reference = task.remote(function, arguments, self.cores, str(Path.cwd()))
        future: Future[Any] = reference.future()
        self.active[future] = reference
        return future

    def train(self, run: Run) -> "Future[Any] | None":
        """Train a run; None if another process trains it or has finished it."""
        with ExitStack() as lock:
            try:
                lock.enter_context(held(run.folder))
            except BusyError:
                return None
            if run.summary() is not None:
                return None
            begun = read_files(run.folder)
            self.folders[run.folder.name] = run.folder, lock.pop_all()
        return self.submit(work, run, self.keeper, begun)

    def fetch(self) -> None:
        """Write what runs have left by now into their folders."""
        for name, found in self.ray.get(self.keeper.take.remote()).items() if self.keeper else ():
            if name in self.folders:
                write_files(self.folders[name][0], found)

    def error(self, run: Run, future: "Future[Any]") -> str | None:
        """Say how a run ended, for one without a result."""
        self.fetch()
        name = run.folder.name
        with self.folders.pop(name)[1]:
            assert self.keeper is not None
            self.keeper.forget.remote(name)
            try:
                return last_words(run, f"exit code {future.result()}")
            except self.ray.exceptions.RayError as error:
                lines = str(error).strip().splitlines()
                return f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"

    def ended(self, future: "Future[Any]") -> None:
        """Forget a task."""
        del self.active[future]

    def stop(self) -> None:
        """Let runs end after their round, and anything else at once."""
        for reference in self.active.values():
            self.ray.cancel(reference, recursive=False)
        if self.active and self.keeper:
            self.ray.wait([*self.active.values()], num_returns=len(self.active), timeout=_PATIENCE)
            self.fetch()

    def close(self) -> None:
        """Give back the runs' folders."""
        for _, lock in self.folders.values():
            lock.close()


def shares(resources: dict[str, float], workers: int) -> tuple[int, float]:
    """Divide a cluster among ``workers`` runs at a time.

    Args:
        resources: What Ray says that the cluster has.
        workers: Runs at a time.

    Returns:
        Cores of a run, whole ones and at least one; of GPUs one, or a part that divides one.

    >>> shares({"CPU": 16.0}, 3)
    (5, 0.0)
    >>> shares({"CPU": 16.0, "GPU": 2.0}, 6)
    (2, 0.3333333333333333)
    """
    gpus = resources.get("GPU", 0.0)
    return max(int(resources.get("CPU", 1)) // workers, 1), 1 / ceil(workers / gpus) if gpus else 0.0


def _connect(address: str | None) -> Any:
    """Connect to Ray, once for this process; gives the package.

    Raises:
        SettingError: If it is not installed, or does not answer.
    """
    if find_spec("ray") is None:
        raise SettingError(f"--on ray needs ray, got none; {install('ray')}.")
    import ray

    if ray.is_initialized():
        return ray
    told = signal.getsignal(signal.SIGTERM)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # as it will be; else Ray warns of it
    try:
        ray.init(
            address=address, log_to_driver=False, logging_level="ERROR", include_dashboard=None if address else False
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise SettingError(f"there is no Ray at {address}: {said(error)}") from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, told)  # which Ray has taken over
    return ray
