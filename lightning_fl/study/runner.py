"""Run several trainings, or calls of any function, at once: by processes of this machine, or as tasks of Ray.

A run's folder is named by its `identity`.  It is finished when its ``summary.json`` says completed or diverged; another
call then reuses that result.  A stopped run continues from its checkpoint.  Processes may share a folder of runs: a
run's folder is held by who trains it.  Each run has a worker of its own: an error in it, or its death, costs that run
alone.
"""

import signal
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

from lightning_fl.errors import SettingError
from lightning_fl.network.threads import n_cores, n_threads
from lightning_fl.study.processes import Processes
from lightning_fl.study.worker import Run
from lightning_fl.text import many


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
        fresh: Whether each call of `each` has a worker of its own, which keeps nothing of the last one.

    Raises:
        SettingError: If ``workers`` is below 1.
    """

    def __init__(self, workers: int = 1, on: str | None = None, fresh: bool = False):
        if workers < 1:
            raise SettingError(f"--workers must be at least 1, got {workers}.")
        self.workers, self.on, self.fresh = workers, on, fresh

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

    def each(
        self, function: Callable[..., Any], calls: Iterable[tuple[Any, ...]], lost: Callable[..., Any] | None = None
    ) -> Generator[Any, None, None]:
        """Call a function with each of many arguments, in workers that stay; a single one that may is this process.

        Args:
            function: A function of a module that can be imported.
            calls: Arguments.
            lost: Says what a call gives whose worker died.  None: that ends all of them.

        Yields:
            What each call gives, as it comes.
        """
        if self.workers == 1 and self.on is None and not self.fresh:
            yield from (function(*arguments) for arguments in calls)
            return
        engine = self._engine(self.fresh)
        with closing(self._done(engine, lambda arguments: engine.submit(function, *arguments), calls)) as done:
            for arguments, future, _ in done:
                if lost is not None and isinstance(future.exception(), engine.death):
                    yield lost(*arguments)
                else:
                    yield future.result()

    def _engine(self, fresh: bool) -> Any:
        if self.on is None:
            return Processes(self.workers, fresh)
        from lightning_fl.study.ray_tasks import Tasks

        return Tasks(self.workers, fresh, None if self.on == "ray" else self.on)

    def _done(
        self, engine: Processes, submit: Callable[[Any], "Future[Any] | None"], calls: Iterable[Any]
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
