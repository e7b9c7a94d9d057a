"""Runs as tasks of Ray, on this machine or on a cluster; `engine` chooses.

A task trains in a folder of its own, wherever Ray puts it, so no file system need be shared.  After each checkpoint it
hands its files to an actor in the cluster, and the caller fetches them into the run's folder.  When a worker dies, Ray
starts the task again, which goes on from what the actor has.  When the caller dies, the same command goes on from what
it had fetched.
"""

import os
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any

import torch

from lightning_fl import files
from lightning_fl.errors import SettingError, install
from lightning_fl.run.command import carry_out
from lightning_fl.run.explain import explained
from lightning_fl.run.lock import BusyError, held
from lightning_fl.run.saved import last_checkpoint
from lightning_fl.study.pool import Outcome, Run, clear, last_words, settings

Files = dict[str, bytes]

_POLL = 1.0  # seconds between two looks at a run's checkpoint, and between two fetches
_RETRIES = 5  # times that a run goes on after its worker has died
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


def work(run: Run, threads: int, place: str, keeper: Any, begun: Files) -> tuple[int, Files]:
    """Train one run in a folder of its own: a task of Ray.

    Args:
        run: The run.
        threads: How many torch may use.
        place: The caller's working folder, entered where it exists.
        keeper: The actor.
        begun: The run's files so far, as the caller has them.

    Returns:
        The exit code that a process would have, and the run's files.
    """
    import ray

    name = run.folder.name
    begun = ray.get(keeper.get.remote(name)) or begun
    if Path(place).is_dir():
        os.chdir(place)
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, name)
        folder.mkdir()
        write_files(folder, begun)
        ended = threading.Event()
        sender = threading.Thread(target=_send, args=(name, folder, keeper, ended), daemon=True)
        sender.start()
        try:
            code = _train(replace(run, folder=folder))
        finally:
            ended.set()
            sender.join()
        found = read_files(folder)
        ray.get(keeper.put.remote(name, found))  # where the task was cancelled, what it returns is lost
        return code, found


def _train(run: Run) -> int:
    """Train; what is printed goes to ``train.log``.  Gives the exit code."""
    with (run.folder / "train.log").open("a", buffering=1) as log, redirect_stdout(log), redirect_stderr(log):
        try:
            with explained():
                clear(run.folder)
                carry_out(settings(run))
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except KeyboardInterrupt:
            return 130
        except BaseException:  # whatever it was, a process would have ended of it, and this is one
            traceback.print_exc()
            return 1
    return 0


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


@dataclass
class _Active:
    """A run that Ray trains: since when, and the lock on its folder."""

    run: Run
    lock: ExitStack
    started: float


def execute(runs: Sequence[Run], workers: int = 1, address: str | None = None) -> Generator[Outcome, None, None]:
    """Train what is not finished as tasks of Ray; see `pool.execute`.

    Args:
        runs: What to train.
        workers: How many at a time; each has its share of the cluster's cores and GPUs.
        address: Of the cluster, such as ray://HOST:10001.  None: the one that Ray finds, or this machine.

    Yields:
        Each run as it ends; those that another process trains come last.

    Raises:
        SettingError: If ``workers`` is below 1, or there is no Ray or no such cluster.
    """
    if workers < 1:
        raise SettingError(f"workers must be at least 1, got {workers}.")
    if not runs:
        return
    ray = _connect(address)
    cores, gpus = shares(ray.cluster_resources(), workers)
    task = ray.remote(num_cpus=cores, num_gpus=gpus, max_calls=1, max_retries=_RETRIES)(work)
    keeper = ray.remote(num_cpus=0)(Keeper).remote()
    waiting, elsewhere, active = list(runs), list[Run](), dict[Any, _Active]()

    def fetch() -> None:
        folders = {entry.run.folder.name: entry.run.folder for entry in active.values()}
        for name, found in ray.get(keeper.take.remote()).items():
            if name in folders:
                write_files(folders[name], found)

    try:
        while waiting or active:
            while waiting and len(active) < workers:
                run, lock = waiting.pop(0), ExitStack()
                if any(run.folder == entry.run.folder for entry in active.values()):  # under another label
                    elsewhere.append(run)
                    continue
                try:
                    lock.enter_context(held(run.folder))
                except BusyError:
                    elsewhere.append(run)
                    continue
                if run.summary() is not None:
                    lock.close()
                    yield Outcome(run, run.summary())
                    continue
                begun = read_files(run.folder)
                begun.pop("train.log", None)
                given = (run, cores, str(Path.cwd()), keeper, begun)
                active[task.remote(*given)] = _Active(run, lock, time.monotonic())
            done = ray.wait(list(active), timeout=_POLL)[0] if active else []
            fetch()
            for reference in done:
                entry = active.pop(reference)
                with entry.lock:
                    error = _end(ray, reference, entry.run)
                    ray.get(keeper.forget.remote(entry.run.folder.name))
                    summary = entry.run.summary()
                yield Outcome(entry.run, summary, None if summary else error, time.monotonic() - entry.started)
    finally:
        for reference in active:
            ray.cancel(reference, recursive=False)
        if active:
            ray.wait(list(active), num_returns=len(active), timeout=_PATIENCE)
            fetch()
        for entry in active.values():
            entry.lock.close()
    for run in elsewhere:
        yield Outcome(run, run.summary())


def each(
    function: Callable[..., Any], calls: Iterable[tuple[Any, ...]], workers: int = 1, address: str | None = None
) -> Generator[Any, None, None]:
    """Call a function with each of many arguments as tasks of Ray; a task whose worker dies is started again.

    Args:
        function: Of a module that the cluster can import.
        calls: Arguments.
        workers: How many at a time; see `execute`.
        address: See `execute`.

    Yields:
        What each call gives, as it comes.

    Raises:
        SettingError: If there is no Ray or no such cluster.
    """
    ray = _connect(address)
    cores, gpus = shares(ray.cluster_resources(), workers)
    task = ray.remote(num_cpus=cores, num_gpus=gpus, max_retries=_RETRIES)(_called)
    waiting, active = iter(calls), list[Any]()
    try:
        while True:
            for arguments in islice(waiting, workers - len(active)):
                active.append(task.remote(function, arguments, cores, str(Path.cwd())))
            if not active:
                return
            done, active = ray.wait(active)
            for reference in done:
                yield ray.get(reference)
    finally:
        for reference in active:
            ray.cancel(reference, recursive=False)


def _called(function: Callable[..., Any], arguments: tuple[Any, ...], threads: int, place: str) -> Any:
    if Path(place).is_dir():
        os.chdir(place)
    torch.set_num_threads(threads)
    return function(*arguments)


def _end(ray: Any, reference: Any, run: Run) -> str:
    """Write the files of a run that has ended; say how, for one without a result."""
    try:
        code, found = ray.get(reference)
    except ray.exceptions.RayError as error:
        lines = str(error).strip().splitlines()
        return f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"
    write_files(run.folder, found)
    return last_words(run, code)


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
    try:
        ray.init(
            address=address, log_to_driver=False, logging_level="ERROR", include_dashboard=None if address else False
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise SettingError(f"there is no Ray at {address}: {' '.join(str(error).split())}") from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, told)  # which Ray has taken over
    return ray
