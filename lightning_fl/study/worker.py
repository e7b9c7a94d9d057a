"""One run of many, as the worker does it that trains it: into its folder, with what it prints in a file there."""

import os
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from lightning_fl import files
from lightning_fl.errors import SettingError
from lightning_fl.run.config import compose
from lightning_fl.run.explain import explained
from lightning_fl.run.identity import identity
from lightning_fl.run.lock import BusyError, held
from lightning_fl.run.saved import finished, last_checkpoint
from lightning_fl.text import for_hydra

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
    with files.unlinked(path).open("w", buffering=1, encoding="utf-8", errors="backslashreplace") as log:
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
    return [f"run_dir={for_hydra(folder)}", "ckpt_path=auto", "trainer.enable_progress_bar=false"]


def last_words(run: Run, how: str) -> str:
    """Say why a run left no result: its log's last error, or last line."""
    log = run.folder / "train.log"
    text = log.read_text("utf-8", errors="replace") if log.exists() else ""  # it may never have begun
    lines = text.strip().splitlines()
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)] or lines
    return f"{errors[-1] if errors else 'no output'} ({how}; {log})"
