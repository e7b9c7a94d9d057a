"""Run several trainings, or calls of any function, at once: by processes of this machine, or as tasks of Ray.

A run's folder is named by its `identity`.  It is finished when its ``summary.json`` says completed or diverged; another
call then reuses that result.  A stopped run continues from its checkpoint.  Processes may share a folder of runs: a
run's folder is held by who trains it.  Each run has a worker of its own: an error in it, or its death, costs that run
alone.
"""

import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from itertools import islice
from multiprocessing import connection
from pathlib import Path
from types import FrameType
from typing import Any

from omegaconf import DictConfig

from lightning_fl.errors import SettingError
from lightning_fl.network.threads import n_cores, n_threads, set_threads
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
    seconds: float = 0.0  # from start to end of its worker


class Runner:
    """Runs or calls, several at a time.

    Args:
        workers: How many at a time; they share the cores.
        on: "ray", or the address of a cluster of Ray.  None: processes of this machine.

    Raises:
        SettingError: If ``workers`` is below 1.
    """

    def __init__(self, workers: int = 1, on: str | None = None):
        if workers < 1:
            raise SettingError(f"--workers must be at least 1, got {workers}.")
        self.workers, self.on = workers, on

    def __str__(self) -> str:
        """Say where runs are trained, or how several workers share the cores; nothing of a single one here."""
        if self.on or self.workers == 1:
            return f" on {self.on}" if self.on else ""
        threads = max(n_threads() // self.workers, 1)
        return f"; {self.workers} workers, {many(threads, 'thread')} each, share {n_cores()} cores"

    def train(self, runs: Iterable[Run]) -> Generator[Outcome, None, None]:
        """Train what is not finished, in the given order.

        Closing the iterator, or Ctrl-C, stops the running ones after their round; the next call continues from there.

        Args:
            runs: What to train.

        Yields:
            First what is finished, then each run as it ends; those that another process trains come last, with the
            summary if it exists by then.
        """
        missing, elsewhere = dict[Path, Run](), list[Run]()
        for run in runs:
            if run.folder in missing:  # under another label
                elsewhere.append(run)
            elif (summary := run.summary()) is not None:
                yield Outcome(run, summary)
            else:
                missing[run.folder] = run
        if missing:
            engine = self._engine(fresh=True)
            with closing(self._done(engine, engine.train, missing.values())) as done:
                for run, future, seconds in done:
                    if future is None or (error := engine.error(run, future)) is None:
                        elsewhere.append(run)
                    else:
                        summary = run.summary()
                        yield Outcome(run, summary, None if summary else error, seconds)
        yield from (Outcome(run, run.summary()) for run in elsewhere)

    def each(self, function: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> Generator[Any, None, None]:
        """Call a function with each of many arguments, in workers that stay; a single worker is this process.

        Args:
            function: Of a module that can be imported.
            calls: Arguments.

        Yields:
            What each call gives, as it comes.
        """
        if self.workers == 1 and self.on is None:
            yield from (function(*arguments) for arguments in calls)
            return
        engine = self._engine(fresh=False)
        with closing(self._done(engine, lambda arguments: engine.submit(function, *arguments), calls)) as done:
            for _, future, _ in done:
                yield future.result()

    def _engine(self, fresh: bool) -> Any:
        if self.on is None:
            return Processes(self.workers, fresh)
        from lightning_fl.study.ray_tasks import Tasks

        return Tasks(self.workers, fresh, None if self.on == "ray" else self.on)

    def _done(
        self, engine: "Processes", submit: Callable[[Any], "Future[Any] | None"], calls: Iterable[Any]
    ) -> Generator[tuple[Any, Any, float], None, None]:
        """Yield each call with its future and its seconds once it is done; with None if it was not taken."""
        waiting, active = iter(calls), dict[Future[Any], tuple[Any, float]]()
        try:
            while (next_ones := list(islice(waiting, self.workers - len(active)))) or active:
                for call in next_ones:
                    future = submit(call)
                    if future is None:
                        yield call, None, 0.0
                    else:
                        active[future] = call, time.monotonic()
                done, _ = wait(active, engine.poll, FIRST_COMPLETED)
                engine.fetch()
                for future in done:
                    call, started = active.pop(future)
                    engine.ended(future)
                    yield call, future, time.monotonic() - started
        except BaseException:
            engine.stop()
            raise
        finally:
            engine.close()


class Processes:
    """Workers of this machine, forked from a server that has imported torch and Lightning once.

    Args:
        workers: How many share the cores.
        fresh: Whether each call has a process of its own; otherwise they stay.
    """

    poll: float | None = None  # seconds between two calls of `fetch`

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
        except BrokenExecutor:
            return last_words(run, "killed")
        return None if code == HELD else last_words(run, f"exit code {code}")

    def fetch(self) -> None:
        """Fetch what runs have left by now: it is here."""

    def ended(self, future: "Future[Any]") -> None:
        """Keep a worker for the next call."""
        worker = self.busy.pop(future)
        if self.fresh or isinstance(future.exception(), BrokenExecutor):
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
    """Choose how workers start: forked from a server that has imported torch, where the system can."""
    methods = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
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
    finally:
        parent = multiprocessing.parent_process()
        if parent is not None and not parent.is_alive():  # nobody waits for it
            os._exit(1)


def work(run: Run) -> int:
    """Train one run into its folder; what it prints goes to ``train.log`` there.

    Returns:
        The exit code of a command, or `HELD`.
    """
    try:
        with held(run.folder):
            if run.summary() is not None:  # another process has just finished it
                return 0
            with _logged(run.folder / "train.log"):
                return _exit_code(run)
    except BusyError:
        return HELD


def _exit_code(run: Run) -> int:
    from lightning_fl.run.command import carry_out

    try:
        with explained():
            clear(run.folder)
            carry_out(settings(run))
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:  # whatever it was, a command would have ended of it
        traceback.print_exc()
        return 1
    return 0


@contextmanager
def _logged(path: Path) -> Iterator[None]:
    """Let what this process and its libraries print go to a file."""
    with path.open("w", buffering=1, encoding="utf-8", errors="backslashreplace") as log:
        before = {number: os.dup(number) for number in (1, 2)}
        try:
            for number in before:
                os.dup2(log.fileno(), number)
            with redirect_stdout(log), redirect_stderr(log):
                yield
        finally:
            for number, kept in before.items():
                os.dup2(kept, number)
                os.close(kept)


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
    quoted = "'" + str(folder).replace("'", r"\'") + "'"
    return [f"run_dir={quoted}", "ckpt_path=auto", "trainer.enable_progress_bar=false"]


def last_words(run: Run, how: str) -> str:
    """Say why a run left no result: its log's last error, or last line."""
    log = run.folder / "train.log"
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []  # it may never have begun
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)] or lines
    return f"{errors[-1] if errors else 'no output'} ({how}; {log})"


def stop_when_told() -> None:
    """Let SIGTERM stop this process as Ctrl-C does, even if a shell has started it in the background."""

    def stop(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(f"stopped by {signal.Signals(signum).name}")

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


@contextmanager
def resumable() -> Iterator[None]:
    """Say, if something is stopped, that nothing is lost."""
    try:
        yield
    except KeyboardInterrupt:
        print("\nStopped; the same command goes on from here.", file=sys.stderr)
        raise


class Progress:
    """Report each run that ends in one line: how many are done, the result, and how long the rest may take."""

    def __init__(self, total: int, workers: int):
        self.total, self.workers = total, workers
        self.done, self.failed = 0, set[Run]()
        self.seconds: list[float] = []

    def follow(self, outcomes: Generator[Outcome, None, None]) -> None:
        """Print a line for each outcome as it comes."""
        with closing(outcomes), resumable():
            for outcome in outcomes:
                print(self.line(outcome), flush=True)

    def line(self, outcome: Outcome) -> str:
        """Count an outcome and describe it."""
        self.done += 1
        summary = outcome.summary
        if summary is None:
            self.failed |= {outcome.run} if outcome.error else set()
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
        failed = f", {len(self.failed)} failed" if self.failed else ""
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
