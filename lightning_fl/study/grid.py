"""A table's runs and what they measured.

A run is known by its `identity`: its folder, or a row of scripts/tables/measured, holds its results.
"""

import csv
import io
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import inf, isnan
from pathlib import Path
from statistics import mean, quantiles
from typing import Any

from omegaconf import OmegaConf

from lightning_fl import files
from lightning_fl.errors import DataError, SettingError
from lightning_fl.run.check import checked
from lightning_fl.run.config import words
from lightning_fl.run.identity import beside
from lightning_fl.run.saved import SavedRun
from lightning_fl.study.factors import Choice, Factors
from lightning_fl.study.pool import Run
from lightning_fl.study.table import MORE_IS_BETTER, TABLES, Cell, Table

FIELDS = ["row", "column", "seed", "status", "accuracy", "best", "mrd", "rounds", "rounds_to", "loss", "rule_ms"]
FIELDS += ["fits", "explained", "loss_ratio", "loss_ratio_95", "byzantine_share", "seconds", "recall", "identity"]
FIELDS += ["version", "classes"]  # the code that measured it, and c; none in rows that are older than these columns
MISS = 2.0  # points
_ROUNDING = 1e-5  # points: an accuracy is a quotient in float32
_LONGEST = 200  # characters of a file's name

Record = dict[str, Any]


def measure(folder: Path, target: float) -> Record:
    """Read from a finished run's files what a table can show; shares in percent."""
    run = SavedRun.read(folder)
    summary, rows = run.summary, run.metrics
    evaluated = [(row["round"], 100 * row["accuracy"]) for row in rows if "accuracy" in row]

    def column(name: str) -> list[float]:
        return [row[name] for row in rows if name in row]

    seconds, ratios = column("seconds/aggregator"), column("aggregator/loss_ratio")
    last = summary["last_evaluation"]
    return {
        "status": summary["status"],
        "accuracy": evaluated[-1][1] if evaluated else None,
        "best": max((accuracy for _, accuracy in evaluated), default=None),
        "rounds": summary["rounds"],
        "rounds_to": next((number for number, accuracy in evaluated if accuracy >= target - _ROUNDING), None),
        "loss": rows[-1]["loss"] if rows else None,
        "rule_ms": _mean([1e3 * second for second in seconds]),
        "fits": _mean(column("aggregator/fits")),
        "explained": _mean([100 * share for share in column("aggregator/explained")]),
        "loss_ratio": _mean(ratios),
        "loss_ratio_95": quantiles(ratios, n=20, method="inclusive")[-1] if len(ratios) > 1 else _mean(ratios),
        "byzantine_share": summary["byzantine_share"],
        "seconds": summary["seconds"],
        "recall": " ".join("nan" if share is None else f"{100 * share:.4g}" for share in last["recall"] or []),
        "version": summary["version"],
        "classes": summary.get("n_classes"),
    }


def _mean(values: Sequence[float]) -> float | None:
    return mean(values) if values else None


class _Names:
    """Names of a grid's runs: those of the cells that are asked for."""

    def __init__(self, grid: "Grid", cells: Collection[Cell]):
        self._grid = grid
        self._factors = Factors(words(grid.table.base), map(self._choices, cells))
        self._seen: dict[tuple[str, ...], list[str]] = {}

    def of(self, cell: Cell) -> tuple[tuple[str, ...], list[str]]:
        """Give the overrides of a cell, without a seed, and the name of each seed's run."""
        choices = self._choices(cell)
        choices[-1] += tuple(self._scaled(choices))
        overrides = tuple(self._factors.overrides(choices))
        if overrides not in self._seen:
            self._seen[overrides] = self._factors.names(choices, self._grid.seeds)
        return overrides, self._seen[overrides]

    def _choices(self, cell: Cell) -> list[Choice]:
        return [*self._grid.table.choices(cell), tuple(self._grid.more)]

    def _scaled(self, choices: Sequence[Choice]) -> list[str]:
        """What multiplies the rounds and the schedule's rounds by the scale."""
        scale = self._grid.scale
        if scale == 1:
            return []
        settings = self._factors.settings(choices)
        config = checked(self._factors.overrides(choices)) if settings is None else OmegaConf.create(settings)
        paths = ["trainer.max_steps", "schedule.lr_lambda.start", "schedule.lr_lambda.interval"]
        found = {path: OmegaConf.select(config, path) for path in paths}
        return [f"{path}={max(round(scale * n), 1)}" for path, n in found.items() if n is not None]


@dataclass
class Grid:
    """A table's runs and results: which run each cell and seed has, and what is known of it.

    A run is known by its composed settings: of a large table only some cells may be asked.

    Args:
        table: Which table.
        scale: Factor for the rounds.
        more: Further overrides of every run.
        seeds: Of every cell; with ``kept_only`` those that are kept.
        folder: Of runs and reports.
        asked: Cells to know, besides those measured before and those of the same runs; None: all.
        kept_only: Whether to know what scripts/tables/measured has of the table and nothing else, without composing.
    """

    table: Table
    scale: float
    more: list[str]
    seeds: list[int]
    folder: Path
    asked: Collection[Cell] | None = None
    kept_only: bool = False

    def __post_init__(self) -> None:
        every = list(self.table.runs())
        if any(text.lstrip("+~").startswith("seed=") for given in (self.more, *dict(every).values()) for text in given):
            raise SettingError(
                "a table's runs have their seeds from --seeds (7, is seed 7 alone), got seed=...; leave it out."
            )
        self.plan: dict[tuple[Cell, int], Run] = {}
        self.records: dict[str, Record] = {}
        if self.kept_only:
            for row in [*self.kept_elsewhere(), *read(self.kept)]:
                cell, name = (row["row"], row["column"]), row["identity"]
                self.plan[cell, row["seed"]] = Run(", ".join(cell), (), self.folder / name)
                self.records[name] = row
            self.seeds = sorted({seed for _, seed in self.plan})
            return
        stems = [self.stem, *map(self._stem, self.table.like)]
        measured = {path.stem: read(path) for path in sorted((TABLES / "measured").glob("*.csv"))}
        kept = [row for stem in stems for row in [*measured.get(stem, []), *read(self.folder / f"{stem}.csv")]]
        before = {(row["row"], row["column"]) for row in kept}
        self.seeds = [*self.seeds, *sorted({row["seed"] for row in kept} - {*self.seeds})]
        wanted = None if self.asked is None else before.union(self.asked)
        needed = {tuple(given) for cell, given in every if wanted is None or cell in wanted}
        cells = [cell for cell, given in every if tuple(given) in needed]
        names = _Names(self, cells)
        for cell in cells:
            overrides, found = names.of(cell)
            for seed, name in zip(self.seeds, found, strict=True):
                label = f"{cell[1]}, {cell[0]}, seed {seed}"
                folder = self.folder.absolute() / name
                self.plan[cell, seed] = Run(label, (*overrides, f"seed={seed}"), folder, self.stem)
        used = {run.folder.name for run in self.plan.values()}
        for stem, rows in measured.items():
            if stem in stems or isnan(self.table.target):  # rounds_to is another table's target's
                self.records |= {record["identity"]: record for record in rows if record["identity"] in used}
        self.refresh()

    def refresh(self) -> None:
        """Load results that any process has finished since, also of cells and seeds that only it was asked for."""
        labels = {cell for cell, _ in self.table.runs()}
        for row in read(self.folder / f"{self.stem}.csv"):
            cell, seed = (row["row"], row["column"]), row["seed"]
            if cell in labels and (cell, seed) not in self.plan:  # those that were there at the start are
                self.plan[cell, seed] = Run(", ".join(cell), (), self.folder.absolute() / row["identity"])
                self.seeds += [] if seed in self.seeds else [seed]
        for run in self.plan.values():
            self.look(run)

    @property
    def stem(self) -> str:
        """Name of the files of this table at this scale and with these overrides."""
        return self._stem(self.table.name)

    def _stem(self, table: str) -> str:
        parts = [table, *([f"scale_{self.scale:g}"] if self.scale != 1 else []), *self._counted()]
        stem = "_".join(re.sub(r"[^\w.=-]+", "-", part) for part in parts)
        return stem if len(stem) <= _LONGEST else f"{stem[:_LONGEST]}_{sha256(stem.encode()).hexdigest()[:8]}"

    @property
    def kept(self) -> Path:
        """File of the table's kept cells."""
        return self._kept(self.table.name)

    def _kept(self, table: str) -> Path:
        return TABLES / "measured" / f"{self._stem(table)}.csv"

    def kept_elsewhere(self) -> list[Record]:
        """List the rows of cells that a table kept which this one is like, and which have the same settings there."""
        own, found = dict(self.table.runs()), []
        for name in self.table.like:
            if rows := read(self._kept(name)):
                theirs = dict(Table.load(name).runs())
                cells = {cell for cell, overrides in theirs.items() if overrides == own.get(cell)}
                found += [row for row in rows if (row["row"], row["column"]) in cells]
        return found

    @property
    def changes(self) -> list[str]:
        """What makes this another setting than the paper's, in a few words each."""
        return [*([f"rounds times {self.scale:g}"] if self.scale != 1 else []), *self._counted()]

    def _counted(self) -> list[str]:
        return [override for override in self.more if not beside(override)]

    def look(self, run: Run) -> Record | None:
        """Get what is known of a run."""
        if run.folder.name not in self.records and run.summary():
            try:
                self.records[run.folder.name] = measure(run.folder, self.table.target)
            except DataError as error:
                raise DataError(f"{error} To train this run again, remove {run.folder}.") from error
        return self.records.get(run.folder.name)

    def missing(self, rows: Sequence[str], columns: Sequence[str], seeds: Sequence[int]) -> list[Run]:
        """List the runs still to be trained, one seed of everything first."""
        order = [self.plan[cell, seed] for seed in seeds for cell in self.table.trained(rows, columns)]
        unique: dict[Path, Run] = {}
        for run in order:
            if self.look(run) is None:
                unique.setdefault(run.folder, run)
        return list(unique.values())

    def value_of(self, cell: Cell, seed: int) -> float | None:
        """Get a cell's number at one seed; the accuracy after a diverged run is chance."""
        column, record = self.table.columns[cell[1]], self.record(cell, seed)
        if record is None:
            return None
        if column.value == "mrd":
            return self._drop(record, self.record((self.table.reference[cell[0]], cell[1]), seed))
        if column.value == "rounds_to":
            return float(record["rounds_to"] or inf)
        if column.value == "loss" and record["status"] == "diverged":
            return inf
        value: float | None = record.get(column.value)
        if record["status"] == "diverged" and (column.value == "accuracy" or (column.value == "best" and not value)):
            return self._chance(record)
        return value

    def _chance(self, record: Record) -> float | None:
        """The accuracy of guessing: the table's, else 100 / c; c is the run's or, in an old file, another run's."""
        if not isnan(self.table.chance):
            return self.table.chance
        if record.get("classes"):
            return 100 / float(record["classes"])
        recalls = [record["recall"], *(other["recall"] for other in self.records.values())]
        return next((100 / len(recall.split()) for recall in recalls if recall), None)

    @staticmethod
    def _drop(record: Record, reference: Record | None) -> float | None:
        if reference is None or reference is record or "diverged" in (record["status"], reference["status"]):
            return None
        import torch

        from lightning_fl.metric.max_recall_drop import max_recall_drop

        recalls = [torch.tensor([float(z) for z in r["recall"].split()]) for r in (record, reference)]
        drop = float(max_recall_drop(*recalls))
        return None if isnan(drop) else drop

    def record(self, cell: Cell, seed: int) -> Record | None:
        """Get what is known of a cell's run."""
        run = self.plan.get((cell, seed))
        return self.records.get(run.folder.name) if run else None

    def over_seeds(self, cell: Cell) -> tuple[list[float], list[Record]]:
        """Get a cell's numbers at the measured seeds, and the records of its diverged runs."""
        values = [self.value_of(cell, seed) for seed in self.seeds]
        diverged = [record for record in self.measured(cell) if record["status"] == "diverged"]
        return [value for value in values if value is not None], diverged

    def measured(self, cell: Cell) -> list[Record]:
        """List what is known of a cell's runs."""
        records = [self.record(cell, seed) for seed in self.seeds]
        return [record for record in records if record is not None]

    def mean(self, row: str, column: str) -> float | None:
        """Get a cell's mean over seeds; None where it is not measured or a run left no number."""
        worst = self.table.columns[column].worst
        if worst:
            means = [self.mean(row, other) for other in worst]
            pick = min if self.table.columns[column].value in MORE_IS_BETTER else max
            return None if None in means else pick(value for value in means if value is not None)
        values, _ = self.over_seeds((row, column))
        return mean(values) if values and not any(self._lost((row, column), seed) for seed in self.seeds) else None

    def _lost(self, cell: Cell, seed: int) -> bool:
        """Whether a cell's run left no number; a drop is not lost where its reference is not measured."""
        if self.record(cell, seed) is None or self.value_of(cell, seed) is not None:
            return False
        drop = self.table.columns[cell[1]].value == "mrd"
        return not drop or self.record((self.table.reference[cell[0]], cell[1]), seed) is not None

    def rows(self) -> list[Record]:
        """List the measured cells for the CSV file."""
        rows = []
        for (cell, seed), run in self.plan.items():
            record = self.records.get(run.folder.name)
            if record is None:
                continue
            drop = self.value_of(cell, seed) if self.table.columns[cell[1]].value == "mrd" else None
            place = {"row": cell[0], "column": cell[1], "seed": seed, "identity": run.folder.name}
            rows.append({**record, **place, "mrd": drop})
        return rows


def read(path: Path) -> list[Record]:
    """Read a file of measured cells; none if there is no file."""
    if not path.exists():
        return []
    texts = {"row", "column", "status", "recall", "identity", "version"}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        found: list[Record] = [
            {k: v if k in texts else float(v) if v else None for k, v in row.items()} for row in rows
        ]
        return [row | {"seed": int(row["seed"])} for row in found if row["row"] and row["column"] and row["identity"]]
    except (UnicodeDecodeError, csv.Error, ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path} is damaged ({' '.join(str(error).split())}); restore it, or remove it.") from error


def write(path: Path, rows: Sequence[Record]) -> None:
    """Write measured cells, numbers to six digits."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, FIELDS)
    writer.writeheader()
    for row in rows:
        writer.writerow({k: f"{row[k]:.6g}" if isinstance(row.get(k), float) else row.get(k) for k in FIELDS})
    files.write(path, text.getvalue())
