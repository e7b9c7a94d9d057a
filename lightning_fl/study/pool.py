"""Runs of train.py found again by their settings, several at a time.

A run's folder is named by its `identity`.  It is finished when its ``summary.json`` says completed or diverged; another
call then takes that result.  A run that was stopped goes on from its checkpoint.  Processes may share a folder of runs:
each run is locked by the process that trains it.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import torch

from lightning_fl.errors import SettingError
from lightning_fl.run.lock import claim

COMMAND = (sys.executable, "-m", "lightning_fl", "train")
FINISHED = ("completed", "diverged")


@dataclass(frozen=True)
class Run:
    """One run: what a person calls it, what train.py is told, and where its files go."""

    label: str
    overrides: tuple[str, ...]
    folder: Path

    def summary(self) -> dict[str, Any] | None:
        """Read the result; None if it is not finished."""
        try:
            summary = json.loads((self.folder / "summary.json").read_text())
        except (OSError, ValueError):
            return None
        return dict(summary) if summary["status"] in FINISHED else None


@dataclass(frozen=True)
class Outcome:
    """How one run ended: its summary, or why there is none."""

    run: Run
    summary: dict[str, Any] | None
    error: str | None = None
    seconds: float = 0.0  # from start to end of its process


def execute(runs: Sequence[Run], workers: int = 1) -> Generator[Outcome, None, None]:
    """Train what is not finished, ``workers`` at a time, in the given order.

    Closing the iterator, or Ctrl-C, stops the running ones after their round; they go on from there the next time.

    Args:
        runs: What to train.
        workers: How many at a time; they share the cores.

    Yields:
        Each run as it ends; those that another process trains come last, with its summary if it is there by
        then.

    Raises:
        SettingError: If ``workers`` is below 1.
    """
    if workers < 1:
        raise SettingError(f"workers must be at least 1, got {workers}.")
    waiting, locked, active = list(runs), list[Run](), list[tuple[Run, subprocess.Popen[bytes], float]]()
    try:
        while waiting or active:
            while waiting and len(active) < workers:
                run = waiting.pop(0)
                lock = claim(run.folder)
                if lock is None:
                    locked.append(run)
                    continue
                with lock:
                    summary = run.summary()
                    if summary is None:
                        active.append((run, _start(run, workers, lock), time.monotonic()))
                if summary is not None:
                    yield Outcome(run, summary)
            for run, process, started in [entry for entry in active if entry[1].poll() is not None]:
                active.remove((run, process, started))
                summary = run.summary()
                error = None if summary else _last_words(run, process.returncode)
                yield Outcome(run, summary, error, time.monotonic() - started)
            if active:
                time.sleep(0.1)
    finally:
        for _, process, _ in active:
            process.send_signal(signal.SIGINT)
        for _, process, _ in active:
            process.wait()
    for run in locked:
        yield Outcome(run, run.summary())


def _start(run: Run, workers: int, lock: TextIO) -> subprocess.Popen[bytes]:
    checkpoint = run.folder / "checkpoints" / "last.ckpt"
    overrides = [*run.overrides, "logger=[]", "trainer.enable_progress_bar=false"]
    overrides.append(f"hydra.run.dir={_quoted(run.folder)}")
    if checkpoint.exists():
        overrides.append(f"ckpt_path={_quoted(checkpoint)}")
    environment = dict(os.environ)
    if workers > 1:
        environment["OMP_NUM_THREADS"] = str(max(torch.get_num_threads() // workers, 1))
    with (run.folder / "train.log").open("w") as log:
        return subprocess.Popen(
            [*COMMAND, *overrides],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            pass_fds=[lock.fileno()],  # the lock lasts as long as the training
            start_new_session=True,  # Ctrl-C reaches this process only, which passes it on
        )


def _quoted(path: Path) -> str:
    """A path as Hydra reads it back, whatever it holds."""
    return "'" + str(path).replace("'", r"\'") + "'"


def _last_words(run: Run, code: int) -> str:
    lines = (run.folder / "train.log").read_text(errors="replace").strip().splitlines()
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)] or lines
    return f"{errors[-1] if errors else 'no output'} (exit code {code}; {run.folder / 'train.log'})"


def stop_when_told() -> None:
    """Let SIGTERM stop this process as Ctrl-C does; that works also where a shell started it in the background."""

    def stop(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


class Progress:
    """One line for each run that ended: how many are done, what came out, and how long the rest may take."""

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
            result = f"diverged after {summary['rounds']} rounds" if summary["status"] == "diverged" else result
            result += f" in {duration(outcome.seconds)}"
        left = self.total - self.done
        if left and self.seconds:
            mean = sum(self.seconds) / len(self.seconds)
            result += f"; about {duration(mean * left / min(self.workers, left))} left"
        failed = f", {self.failed} failed" if self.failed else ""
        return f"[{self.done:>{len(str(self.total))}}/{self.total}{failed}] {outcome.run.label}: {result}"


def duration(seconds: float) -> str:
    """Say a duration as a person would.

    >>> duration(12.3), duration(122), duration(11400)
    ('12 s', '2 min 2 s', '3 h 10 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
