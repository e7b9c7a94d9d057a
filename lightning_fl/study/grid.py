"""A table's cells and what their runs measured.

A cell is known by its labels and its seed: scripts/tables/measured has records, and FOLDER/TABLE.csv those of runs
trained here.  Only what is to be trained is composed; a run with the same `identity` is then taken over.
"""

import re
from collections.abc import Collection, Generator, Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import product
from math import inf, isnan
from pathlib import Path
from statistics import mean, quantiles

from omegaconf import DictConfig, OmegaConf

from lightning_fl.errors import DataError, SettingError
from lightning_fl.run.check import checked
from lightning_fl.run.identity import beside, identity, overridden
from lightning_fl.run.saved import SavedRun
from lightning_fl.study import store
from lightning_fl.study.cell import Cell, f_told
from lightning_fl.study.runner import Outcome, Runner
from lightning_fl.study.store import Record
from lightning_fl.study.study import Study
from lightning_fl.study.table import MORE_IS_BETTER, OF_CLIENTS, POINTS, TABLES, Place, Table
from lightning_fl.study.twins import NUMBER, drawn
from lightning_fl.study.worker import Run

FIELDS = ["row", "column", "seed", "status", "accuracy", "best", "mrd", "rounds", "rounds_to", "loss", "rule_ms"]
FIELDS += ["fits", "explained", "loss_ratio", "loss_ratio_95", "byzantine_share", "seconds", "recall", "identity"]
FIELDS += ["version", "classes", "twin"]  # the code that measured it, and c; none in rows that are older
FIELDS += OF_CLIENTS
STORED = [*FIELDS, "key"]
MISS = 2.0  # points
_ROUNDING = 1e-5  # points: an accuracy is a quotient in float32
_LONGEST = 200  # characters of a file's name


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
        "loss": rows[-1].get("loss") if rows else None,
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
        **{name: _percent((last.get("client_accuracy") or {}).get(key)) for name, key in OF_CLIENTS.items()},
    }


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _mean(values: Sequence[float]) -> float | None:
    return mean(values) if values else None


# What a table varies by itself, and the option that chooses it.
_OPTIONS = {"seed": "--seeds (7, is seed 7 alone)", "twin": "--twins"}


class Grid(Study):
    """A table's cells and their records.

    Args:
        table: Which table.
        scale: Factor for the rounds.
        more: Further overrides of every run.
        seeds: Seeds of every cell; those that are measured join them.
        folder: Folder of runs and reports.
        kept_only: Whether to know what scripts/tables/measured has of the table and nothing else.
        told: f of every run, as a multiple of how many attack in a round; rounded, halves up.  None: the table's.
    """

    labels = ("row", "column")
    seeds: list[int]

    def __init__(
        self,
        table: Table,
        scale: float,
        more: list[str],
        seeds: list[int],
        folder: Path,
        kept_only: bool = False,
        told: float | None = None,
    ):
        self.table, self.scale, self.more, self.seeds, self.folder = table, scale, more, list(seeds), folder
        self.kept_only, self.told = kept_only, told
        self.overrides = {place: (*given, *more) for place, given in table.runs()}
        for text in (text for given in (more, *self.overrides.values()) for text in given):
            if (key := overridden(text)) in _OPTIONS:
                raise SettingError(f"a table's runs have this from {_OPTIONS[key]}, got {key}=...; leave it out.")
        self._composed: dict[tuple[str, ...], tuple[DictConfig, list[str]]] = {}
        self.stem = self._stem(table.name)
        self.kept = self._kept(table.name)
        super().__init__(folder / f"{self.stem}.csv", STORED)
        for row in sorted([*self.kept_elsewhere(), *read(self.kept)], key=lambda row: int(row["seed"])):
            self.put(row, kept=True)
        if not kept_only:
            self.refresh()

    def cell(self, place: Place, seed: int, twin: int | None = None) -> Cell:
        """Give the cell of a row and a column at a seed, or its twin."""
        title = f"{place[1]}, {place[0]}, seed {seed}" + ("" if twin is None else ", twin")
        return Cell(place, self.overrides[place], seed, title, twin)

    def cell_of(self, row: Record) -> Cell | None:
        """Give the cell of a record; see `Study`."""
        place = row["row"], row["column"]
        return self.cell(place, row["seed"], row["twin"]) if place in self.overrides else None

    def key(self, cell: Cell) -> str:
        """Tell what a cell asks for: the rounds to the target, too."""
        return super().key(cell) + ("" if isnan(self.table.target) else f"@{self.table.target:g}")

    def put(self, row: Record, kept: bool = False) -> bool:
        """Let a record count; its seed is shown, too."""
        counts = super().put(row, kept)
        if counts and row["seed"] not in self.seeds:
            self.seeds.append(row["seed"])
        return counts

    def _stem(self, table: str) -> str:
        """Name the files of a table at this scale and with these overrides."""
        parts = [table, *([f"scale_{self.scale:g}"] if self.scale != 1 else [])]
        parts += [*([] if self.told is None else [f"told_{self.told:g}"]), *self._counted()]
        stem = "_".join(re.sub(r"[^\w.=-]+", "-", part) for part in parts)
        return stem if len(stem) <= _LONGEST else f"{stem[:_LONGEST]}_{sha256(stem.encode()).hexdigest()[:8]}"

    def _kept(self, table: str) -> Path:
        """Name the file of a table's kept cells."""
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
        told = [] if self.told is None else [f"rules are told {self.told:g} times as many attackers as there are"]
        return [*([f"rounds times {self.scale:g}"] if self.scale != 1 else []), *told, *self._counted()]

    def _counted(self) -> list[str]:
        return [override for override in self.more if not beside(override)]

    def cells(self, rows: Sequence[str], columns: Sequence[str], seeds: Sequence[int]) -> list[Cell]:
        """List the cells that rows and columns need, one seed of everything first."""
        return [self.cell(place, seed) for seed, place in product(seeds, self.table.trained(rows, columns))]

    def twin_cells(self, rows: Sequence[str], columns: Sequence[str], seed: int, share: float) -> list[Cell]:
        """List the twins of a drawn share of the cells that show points."""
        shown = [place for place in self.table.trained(rows, columns) if self.table.columns[place[1]].value in POINTS]
        places = drawn(shown, share)
        drops = [place for place in places if self.table.columns[place[1]].value == "mrd"]
        places += [(self.table.reference[row], column) for row, column in drops]
        return [self.cell(place, seed, NUMBER) for place in places]

    def compose(self, cell: Cell) -> Run:
        """Compose a cell's run: all its settings, and its `identity`, which names its folder.

        Raises:
            SettingError: If train.py would refuse it.
        """
        if cell.overrides not in self._composed:
            self._composed[cell.overrides] = self._scaled(checked(cell.command))
        config, scaled = self._composed[cell.overrides]
        config.seed, config.twin = cell.seed, cell.twin
        command = replace(cell, overrides=(*cell.overrides, *scaled)).command
        return Run(cell.title, command, self.folder.absolute() / identity(config), self.stem)

    def _scaled(self, config: DictConfig) -> tuple[DictConfig, list[str]]:
        """Multiply the rounds and the schedule's rounds by the scale, and tell f; lists the overrides that do so."""
        paths = ["trainer.max_steps", "schedule.lr_lambda.start", "schedule.lr_lambda.interval"]
        given = {path: OmegaConf.select(config, path) for path in paths if self.scale != 1}
        rounds = {path: max(round(self.scale * n), 1) for path, n in given.items() if n is not None}
        if self.told is not None:
            from hydra.utils import instantiate  # not earlier: a list of tables does not wait for it

            federation = instantiate(config.federation)  # whose participation is a share, also where a count is given
            rounds["f"] = f_told(self.told * federation.participation, federation.n_byzantine)
        for path, number in rounds.items():
            OmegaConf.update(config, path, number)
        return config, [f"{path}={number}" for path, number in rounds.items()]

    def train(self, cells: Iterable[tuple[Cell, Run]], runner: Runner) -> Generator[Outcome, None, None]:
        """Measure cells: train them, or take over what has been measured by an equal run.

        Args:
            cells: With their composed runs.
            runner: Trains them.

        Yields:
            Each cell's outcome.
        """
        wanted: dict[str, tuple[Run, list[Cell]]] = {}
        for cell, run in cells:
            wanted.setdefault(run.folder.name, (run, []))[1].append(cell)
        known = store.find(self._elsewhere(), STORED, wanted.keys())
        for name in [name for name in wanted if name in known]:
            (run, found), record = wanted.pop(name), known[name]
            for cell in found:
                self.add(cell, record)
            share = None if record["accuracy"] is None else record["accuracy"] / 100
            yield Outcome(run, record | {"rounds": int(record["rounds"]), "last_evaluation": {"accuracy": share}})
        for outcome in runner.train([run for run, _ in wanted.values()]):
            if outcome.summary is not None:
                record = self.measure(outcome.run.folder)
                for cell in wanted[outcome.run.folder.name][1]:
                    self.add(cell, record)
            yield outcome

    def _elsewhere(self) -> list[Path]:
        """List the files that may have records of equal runs; others' rounds_to are of another target."""
        stems = [self.stem, *map(self._stem, self.table.like)]
        kept = sorted((TABLES / "measured").glob("*.csv"))
        known = [path for path in kept if path.stem in stems or isnan(self.table.target)]
        return known + [self.folder / f"{stem}.csv" for stem in stems if isnan(self.table.target)]

    def measure(self, folder: Path) -> Record:
        """Read a finished run."""
        try:
            return measure(folder, self.table.target) | {"identity": folder.name}
        except DataError as error:
            raise DataError(f"{error} To train this run again, remove {folder}.") from error

    def add(self, cell: Cell, record: Record) -> None:
        """Keep what a cell's run measured; a drop is of the recalls."""
        super().add(cell, record | {"mrd": None})

    def outdated(self, rows: Iterable[Record]) -> list[Record]:
        """List the kept rows whose cells have changed their settings since; composes every cell."""
        known = [(self.compose(cell), row) for row in rows if (cell := self.cell_of(row)) is not None]
        return [row for run, row in known if run.folder.name != row["identity"]]

    def drop(self, rows: Collection[Record]) -> None:
        """Forget records."""
        self.records = {key: row for key, row in self.records.items() if row not in rows}

    def value_of(self, cell: Place, seed: int, twin: int | None = None) -> float | None:
        """Get a cell's number at one seed; the accuracy after a diverged run is chance."""
        column, record = self.table.columns[cell[1]], self.record(cell, seed, twin)
        if record is None:
            return None
        if column.value == "mrd":
            return self._drop(record, self.record((self.table.reference[cell[0]], cell[1]), seed, twin))
        if column.value == "rounds_to":
            return float(record["rounds_to"] or inf)
        if column.value == "loss" and record["status"] == "diverged":
            return inf
        value: float | None = record.get(column.value)
        known = {"best"} if value else set[str]()
        if record["status"] == "diverged" and column.value in {"accuracy", "best", *OF_CLIENTS} - known:
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

    points = value_of

    def record(self, place: Place, seed: int, twin: int | None = None) -> Record | None:
        """Get what is known of a cell's run."""
        return self.row(self.cell(place, seed, twin)) if place in self.overrides else None

    def over_seeds(self, cell: Place) -> tuple[list[float], list[Record]]:
        """Get a cell's numbers at the measured seeds, and the records of its diverged runs; none of a worst one."""
        values = [self.value_of(cell, seed) for seed in self.seeds]
        diverged = [record for record in self.measured(cell) if record["status"] == "diverged"]
        return [value for value in values if value is not None], diverged

    def measured(self, cell: Place) -> list[Record]:
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

    def _lost(self, cell: Place, seed: int) -> bool:
        """Whether a cell's run left no number; a drop is not lost where its reference is not measured."""
        if self.record(cell, seed) is None or self.value_of(cell, seed) is not None:
            return False
        drop = self.table.columns[cell[1]].value == "mrd"
        return not drop or self.record((self.table.reference[cell[0]], cell[1]), seed) is not None

    def rows(self) -> list[Record]:
        """List the measured cells for the CSV file."""
        rows = []
        for place, seed, twin in product(self.overrides, self.seeds, (None, NUMBER)):
            record = self.record(place, seed, twin)
            if record is not None:
                drop = self.value_of(place, seed, twin) if self.table.columns[place[1]].value == "mrd" else None
                rows.append(record | {"row": place[0], "column": place[1], "seed": seed, "twin": twin, "mrd": drop})
        return rows


def read(path: Path) -> list[Record]:
    """Read a file of measured cells; none if there is no file."""
    return [row for row in store.read(path, STORED) if row["row"] and row["column"] and row["seed"] is not None]
