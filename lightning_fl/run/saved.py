"""A run as its folder keeps it."""

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf._utils import get_yaml_loader

from lightning_fl import yaml_file
from lightning_fl.errors import DataError
from lightning_fl.run.differences import differing, flat, named, texts
from lightning_fl.run.identity import Config, comparable, essential
from lightning_fl.text import said

Row = dict[str, Any]

_LOADER = get_yaml_loader()  # to which 1e-3 is a number
# What summary.json holds.  In another version's, missing keys become None, and unknown ones are left out.
_NUMBERS = ("accuracy", "recall", "mrd", "attack", "validation_accuracy", "client_accuracy")
_SUMMARY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("schema", "version", "status", "reason", "rounds", *_NUMBERS, "byzantine_share", "seconds"), ()),
    **dict.fromkeys(
        ("n_classes", "classes", "byzantine_clients", "reference_recall", "confusion", "guarantee", "privacy"), ()
    ),
    "first_evaluation": ("accuracy", "recall"),
    "last_evaluation": ("round", *_NUMBERS),
    "mean_weight": ("honest", "byzantine"),
    "detection": ("true_alarms", "false_alarms", "auc"),
    "robustness": ("mean", "max", "infinite_rounds", "bound"),
    "communication": ("floats_up", "floats_down", "sample_gradients"),
    "provenance": ("command", "date", "versions", "processor"),
}
# How a run has ended that has a result.
COMPLETED = ("completed", "stopped early")
_DAMAGED = "the file is damaged: train the run again, or give another one"


@dataclass(frozen=True)
class SavedRun:
    """The files of one run.

    Args:
        folder: Where they are.
        config: ``config.yaml``; empty if there is none.
        metrics: Rows of ``metrics.csv``; a round without a value lacks the key.
        weights: Rows of ``weights.csv``; empty for a rule that is not a weighting.
        summary: ``summary.json`` as `read_summary` gives it.
        clients: Rows of ``clients.csv``; empty if there is none.
    """

    folder: Path
    config: Config
    metrics: list[Row]
    weights: list[Row]
    summary: dict[str, Any]
    clients: list[Row] = field(default_factory=list)

    @classmethod
    def read(cls, folder: str | Path) -> "SavedRun":
        """Read a run's folder.

        Raises:
            DataError: If a file is missing or broken; the message names it.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise DataError(f"{folder} is not a folder; give the folder of a run.")
        config = saved_config(folder / "config.yaml")
        summary = read_summary(folder / "summary.json")
        metrics = _rows(folder / "metrics.csv") if summary["rounds"] else []
        weighted = any(name.startswith("weight/") for row in metrics for name in row)
        weights = _rows(folder / "weights.csv") if weighted else []
        path = folder / "clients.csv"
        clients = _rows(path, "client") if path.exists() else []
        return cls(folder, config, metrics, weights, summary, clients)

    @property
    def status(self) -> str:
        """Completed, stopped early, interrupted or diverged."""
        return str(self.summary["status"])

    @property
    def diverged(self) -> bool:
        """Whether the run ended early, without a result."""
        return self.status == "diverged"

    @property
    def evaluations(self) -> list[Row]:
        """Rows of ``metrics.csv`` with an evaluation, preceded by round 0 if the run has measured it."""
        first = self.summary.get("first_evaluation") or {}
        start: list[Row] = []
        if first.get("accuracy") is not None:
            recall = {f"recall/{z}": value for z, value in enumerate(first["recall"] or []) if value is not None}
            start = [{"round": 0, "accuracy": first["accuracy"]} | recall]
        return start + [row for row in self.metrics if row.get("accuracy") is not None]

    @property
    def reference(self) -> list[float | None] | None:
        """Recall of each class by plain averaging without attack; None if no run has measured it."""
        reference: list[float | None] | None = self.summary["reference_recall"]
        return reference

    @property
    def classes(self) -> list[str] | None:
        """Names of the classes; None if the data have none."""
        classes: list[str] | None = self.summary.get("classes")
        return classes

    @property
    def byzantine(self) -> list[int]:
        """Numbers of the Byzantine clients."""
        return list(self.summary["byzantine_clients"] or [])

    @property
    def topics(self) -> list[str]:
        """Rule, attack and data in a few words each."""
        b = (self.config.get("federation") or {}).get("n_byzantine", 0)
        rule, attack, data = (named(self.config.get(group), group) for group in ("aggregator", "adversary", "data"))
        return [rule, f"{b} {attack}" if b else named(None, "adversary"), data]


def read_summary(path: Path) -> dict[str, Any]:
    """Read a run's ``summary.json``, whichever version of the package wrote it.

    Returns:
        The keys that this version knows; None stands for a missing one.

    Raises:
        DataError: If it is missing or broken, or has neither status nor rounds.
    """
    found = _parsed(path, json.loads)
    for name in ("status", "rounds"):
        if name not in found:
            raise DataError(f"{path} has no {name}; is it a run's?")
    summary: dict[str, Any] = {}
    for name, inner in _SUMMARY.items():
        value = found.get(name)
        group = value if isinstance(value, dict) else {}
        summary[name] = {key: group.get(key) for key in inner} if inner else value
    return summary


def finished(folder: Path) -> dict[str, Any] | None:
    """Read the summary of a run that needs no further training; None if it is not there, damaged or interrupted."""
    try:
        summary = read_summary(folder / "summary.json")
    except DataError:
        return None
    return summary if summary["status"] in (*COMPLETED, "diverged") else None


def last_checkpoint(folder: Path) -> Path:
    """Where a run keeps its checkpoint."""
    return folder / "checkpoints" / "last.ckpt"


def starting_point(ckpt_path: str | None, folder: Path) -> Path | None:
    """Find the checkpoint that a run in a folder starts from; None: it starts anew."""
    if ckpt_path != "auto":
        return None if ckpt_path is None else Path(ckpt_path)
    last = last_checkpoint(folder)
    return last if last.exists() else None


def saved_config(path: Path) -> Config:
    """Read a run's ``config.yaml``.

    Raises:
        DataError: If it is missing or broken.
    """
    return _parsed(path, lambda text: yaml_file.load(text, _LOADER))


def contents(config: Config) -> dict[str, str]:
    """List what counts in a run's settings but is not written there: hashes of own code and of files, by setting."""
    counted = flat(essential(config))
    return {name: value for name, value in counted if name.endswith("._code_") or "sha256:" in value}


def contents_path(folder: Path) -> Path:
    """Where a run keeps the `contents` that it began with, if there are any."""
    return folder / ".contents.json"


def saved_contents(folder: Path) -> dict[str, str]:
    """Read the `contents` that a run began with; none if it kept none.

    Raises:
        DataError: If the file is broken.
    """
    path = contents_path(folder)
    return _parsed(path, json.loads) if path.exists() else {}


def trust_shares(summary: dict[str, Any]) -> tuple[float, float] | None:
    """Compute how a rule shares its trust between honest and Byzantine clients, as a mean over rounds.

    A rule's factors need not sum to 1, so they are divided by the sum of their magnitudes.  A share is negative where
    the rule reverses updates.  None if the rule is not a weighting.
    """
    honest, byzantine = summary["mean_weight"]["honest"], summary["mean_weight"]["byzantine"] or 0.0
    total = abs(honest or 0.0) + abs(byzantine) or 1.0
    return None if honest is None else (honest / total, byzantine / total)


def labels(runs: Sequence[SavedRun]) -> list[str]:
    """Name each run by the settings in which it differs from the others, or by its folder.

    Returns:
        One short name per run, all of them different.
    """
    parts = differing(comparable([run.config for run in runs]))
    found = [", ".join(texts(part)) or run.folder.name for part, run in zip(parts, runs, strict=True)]
    if len(set(found)) < len(found):
        found = [
            f"{label} ({run.folder.name})" if found.count(label) > 1 and label != run.folder.name else label
            for label, run in zip(found, runs, strict=True)
        ]
    return [f"{label} [{i}]" if found.count(label) > 1 else label for i, label in enumerate(found)]


def _parsed(path: Path, parse: Callable[[str], Any]) -> dict[str, Any]:
    try:
        content = parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError as missing:
        unfinished = " (a run writes it when it ends)" if path.name == "summary.json" else ""
        raise DataError(f"{path} is not there{unfinished}; give the folder of a finished run.") from missing
    except Exception as broken:  # a parser may raise anything about a broken file
        raise DataError(f"{path} cannot be read: {said(broken)}; {_DAMAGED}.") from broken
    if not isinstance(content, dict) or not content:
        got = type(content).__name__ if content else "nothing"
        raise DataError(f"{path} needs named settings, got {got}; {_DAMAGED}.")
    return content


def _rows(path: Path, key: str = "round") -> list[Row]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            columns = list(reader.fieldnames or [])
            if key not in columns:
                raise DataError(f"{path} needs a column {key}, got {', '.join(columns) or 'no columns'}.")
            return [_row(row, key, f"{path}, line {reader.line_num}") for row in reader]
    except FileNotFoundError as missing:
        raise DataError(f"{path} is not there; give the folder of a finished run.") from missing
    except (OSError, UnicodeDecodeError, csv.Error) as broken:
        raise DataError(f"{path} cannot be read: {broken}; {_DAMAGED}.") from broken


def _row(row: dict[str | Any, Any], key: str, where: str) -> Row:
    if None in row or None in row.values():
        raise DataError(f"{where}: needs as many values as columns.")
    try:
        numbers = {name: float(value) for name, value in row.items() if value != ""}
        return numbers | {key: int(row[key])}
    except ValueError as broken:
        raise DataError(f"{where}: {broken}.") from broken
