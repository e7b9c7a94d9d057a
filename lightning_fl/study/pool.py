"""Run several trainings at once; a run whose settings match a finished one is reused.

A run's folder is named by its `identity`.  It is finished when its ``summary.json`` says completed or diverged; another
call then reuses that result.  A stopped run continues from its checkpoint.  Processes may share a folder of runs:
each run's folder is held by the process that trains it.  A worker is forked for one run, from a server that has
imported torch and Lightning once; an error in it costs that run alone.
"""

import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

from omegaconf import DictConfig

from lightning_fl.errors import SettingError
from lightning_fl.network.threads import n_cores, n_threads
from lightning_fl.run.config import compose
from lightning_fl.run.explain import explained
from lightning_fl.run.identity import identity
from lightning_fl.run.lock import BusyError, held
from lightning_fl.run.saved import finished, last_checkpoint
from lightning_fl.text import many

HELD = 75  # exit code of a worker that finds another process training its run


@dataclass(frozen=True)
class Run:
    """One run: what a person calls it, its settings as for train.py, where its files go, and what it is a part of."""

    label: str
    overrides: tuple[str, ...]
    folder: Path
    group: str | None = None

    def summary(self) -> dict[str, Any] | None:
        """Read the result; None if it is not finished."""
        return finished(self.folder)


@dataclass(frozen=True)
class Outcome:
    """How one run ended: its summary, or why there is none."""

    run: Run
    summary: dict[str, Any] | None
    error: str | None = None
    seconds: float = 0.0  # from start to end of its process


def execute(runs: Sequence[Run], workers: int = 1) -> Generator[Outcome, None, None]:
    """Train what is not finished, ``workers`` at a time, in the given order.

    Closing the iterator, or Ctrl-C, stops the running ones after their round; the next call continues from there.

    Args:
        runs: What to train.
        workers: How many at a time; they share the cores.

    Yields:
        Each run as it ends; those that another process trains come last, with its summary if it exists by
        then.

    Raises:
        SettingError: If ``workers`` is below 1.
    """
    if workers < 1:
        raise SettingError(f"workers must be at least 1, got {workers}.")
    waiting, elsewhere, active = list(runs), list[Run](), list[tuple[Run, BaseProcess, float]]()
    try:
        while waiting or active:
            while waiting and len(active) < workers:
                run = waiting.pop(0)
                if run.summary() is None:
                    active.append((run, _start(run, workers), time.monotonic()))
                else:
                    yield Outcome(run, run.summary())
            if active and all(process.exitcode is None for _, process, _ in active):
                wait([process.sentinel for _, process, _ in active])
            for run, process, started in [entry for entry in active if entry[1].exitcode is not None]:
                active.remove((run, process, started))
                if process.exitcode == HELD:
                    elsewhere.append(run)
                    continue
                summary = run.summary()
                error = None if summary else last_words(run, process.exitcode)
                yield Outcome(run, summary, error, time.monotonic() - started)
    finally:
        for _, process, _ in active:
            with suppress(ProcessLookupError):
                os.kill(process.pid or 0, signal.SIGINT)
        for _, process, _ in active:
            process.join()
    for run in elsewhere:
        yield Outcome(run, run.summary())


def each(function: Callable[..., Any], calls: Iterable[tuple[Any, ...]], workers: int = 1) -> Iterator[Any]:
    """Call a function with each of many arguments, in processes that stay.

    Args:
        function: Of a module that can be imported.
        calls: Arguments.
        workers: How many at a time.

    Yields:
        What each call gives, as it comes.
    """
    if workers == 1:
        yield from (function(*arguments) for arguments in calls)
        return
    begun = (max(n_threads() // workers, 1), Path.cwd(), dict(os.environ))
    waiting, active = iter(calls), set[Future[Any]]()
    pool = ProcessPoolExecutor(workers, _context(), _end_with_parent, begun)
    try:
        while True:
            # One more than there are workers, so that none waits for the next.
            active |= {pool.submit(function, *arguments) for arguments in islice(waiting, workers + 1 - len(active))}
            if not active:
                return
            done, active = wait_for(active, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    except BaseException:
        for worker in [*pool._processes.values()]:
            worker.terminate()  # a run ends after its round
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent(threads: int, place: Path, environment: Mapping[str, str]) -> None:
    """Make a worker that stays like its parent, and let it end when that has ended, however it did."""
    import torch

    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C while nothing is trained; see `each`
    os.environ.update(environment)
    os.chdir(place)
    torch.set_num_threads(threads)


def sharing(workers: int) -> str:
    """Say how several workers share the cores; nothing of a single one."""
    if workers == 1:
        return ""
    threads = max(n_threads() // workers, 1)
    return f"; {workers} workers, {many(threads, 'thread')} each, share {n_cores()} cores"


def _start(run: Run, workers: int) -> BaseProcess:
    """Start a worker for one run."""
    run.folder.mkdir(parents=True, exist_ok=True)
    threads = max(n_threads() // workers, 1)
    process: BaseProcess = _context().Process(target=work, args=(run, threads, Path.cwd(), dict(os.environ)))
    process.start()
    return process


def _context() -> Any:
    """Choose how workers start: forked from a server that has imported torch, where the system can."""
    methods = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    context.set_forkserver_preload([__name__, "lightning_fl.run.command"])
    return context


def work(run: Run, threads: int, place: Path, environment: Mapping[str, str]) -> None:
    """Train one run into its folder; what it prints goes to ``train.log`` there.

    Args:
        run: The run.
        threads: How many torch may use.
        place: The working folder.
        environment: Variables of the process that asks, which may have changed since the server started.
    """
    import torch

    from lightning_fl.run.command import carry_out

    begin(run, place, environment)
    torch.set_num_threads(threads)
    with explained():
        try:
            with held(run.folder):
                (run.folder / "train.log").write_bytes(b"")  # not in `begin`: another process may be writing it
                if run.summary() is not None:  # another process has just finished it
                    return
                clear(run.folder)
                carry_out(settings(run))
        except BusyError:
            sys.exit(HELD)


def settings(run: Run) -> DictConfig:
    """Compose the settings of a run whose folder has its name; it has no loggers but those that it asks for.

    Raises:
        SettingError: If it has another name by now.
    """
    config = compose(["logger=[]", *run.overrides, *places(run.folder)])
    config.run_name, config.run_group = run.label, config.run_group or run.group
    if identity(config) != run.folder.name:
        raise SettingError("code or settings have changed since this run was listed; give the command again.")
    return config


def clear(folder: Path) -> None:
    """Remove the summary of an unfinished run whose checkpoint somebody has removed: it begins anew."""
    if not last_checkpoint(folder).exists():
        (folder / "summary.json").unlink(missing_ok=True)


def places(folder: Path) -> list[str]:
    """Say where a run's files go, that it goes on from its checkpoint there, and that it is one of many."""
    return [f"run_dir={_quoted(folder)}", "ckpt_path=auto", "trainer.enable_progress_bar=false"]


def begin(run: Run, place: Path, environment: Mapping[str, str]) -> None:
    """Make a forked worker behave like a process started by hand."""
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C reaches the process that asks, which passes it on
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(place)
    log = os.open(run.folder / "train.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def _quoted(path: Path | str) -> str:
    """Quote a path so that Hydra reads it back, whatever characters it has."""
    return "'" + str(path).replace("'", r"\'") + "'"


def last_words(run: Run, code: int | None) -> str:
    """Say why a run left no result: its log's last error, or last line."""
    log = run.folder / "train.log"
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []  # it may never have begun
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)] or lines
    return f"{errors[-1] if errors else 'no output'} (exit code {code}; {log})"


def stop_when_told() -> None:
    """Let SIGTERM stop this process as Ctrl-C does, even if a shell has started it in the background."""

    def stop(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(f"stopped by {signal.Signals(signum).name}")

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


class Progress:
    """Report each run that ends in one line: how many are done, the result, and how long the rest may take."""

    def __init__(self, total: int, workers: int):
        self.total, self.workers = total, workers
        self.done, self.failed = 0, 0
        self.seconds: list[float] = []

    def line(self, outcome: Outcome) -> str:
        """Count an outcome and describe it."""
        self.done += 1
        summary = outcome.summary
        if summary is None:
            self.failed += outcome.error is not None
            result = f"failed: {outcome.error}" if outcome.error else "another process trains it"
        else:
            if outcome.seconds:
                self.seconds.append(outcome.seconds)
            accuracy = summary["last_evaluation"]["accuracy"]
            result = "no evaluation" if accuracy is None else f"{accuracy:.1%}".replace("%", " %")
            result = f"diverged after {many(summary['rounds'], 'round')}" if summary["status"] == "diverged" else result
            result += f" in {duration(outcome.seconds)}" if outcome.seconds else " (found)"
        left = self.total - self.done
        if left and self.seconds:
            mean = sum(self.seconds) / len(self.seconds)
            result += f"; about {duration(mean * left / min(self.workers, left))} left"
        failed = f", {self.failed} failed" if self.failed else ""
        return f"[{self.done:>{len(str(self.total))}}/{self.total}{failed}] {outcome.run.label}: {result}"


def duration(seconds: float) -> str:
    """Say a duration as a person would.

    >>> duration(12.3), duration(122.0), duration(11400.0)
    ('12 s', '2 min 2 s', '3 h 10 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
