"""Many runs, one answer: their results by two settings or more, over seeds.

Runs are identified by what their results depend on, so it does not matter who trained them or where they are kept.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_fl import plot
from lightning_fl.errors import DataError, SettingError
from lightning_fl.run.config import no_such
from lightning_fl.run.differences import Part, differing, named, ordered, same, settings, texts
from lightning_fl.run.facts import least_recall
from lightning_fl.run.identity import Config, alike, comparable
from lightning_fl.run.saved import COMPLETED, SavedRun, finished, saved_config
from lightning_fl.study.pivot import Group, t_quantile
from lightning_fl.study.report import Report, Section
from lightning_fl.study.twins import Pair, conclusion
from lightning_fl.tables import Place, best_places
from lightning_fl.tables import cell as markdown_cell
from lightning_fl.text import many, number, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from lightning_fl.plot import Pictures

Key = tuple[str, str, str]  # panel, row, column


# Name and unit, the column of metrics.csv (in a summary GROUP/NAME is NAME of GROUP), and whether more is better.
_METRICS = {
    "accuracy": ("Accuracy (%)", "accuracy", True),
    "validation_accuracy": ("Validation accuracy (%)", "validation_accuracy", True),
    "worst_recall": ("Recall of the least recognised class (%)", "recall", True),
    "mrd": ("Max-recall-drop (%)", "mrd", False),
    "attack": ("Attack success rate (%)", "attack/success_rate", False),
    "kappa": ("Measured kappa, mean over rounds", "robustness/kappa", False),
    "client_mean": ("Accuracy of honest clients, mean (%)", "client_accuracy/mean", True),
    "client_worst": ("Accuracy of honest clients, worst (%)", "client_accuracy/worst", True),
    "client_tenth": ("Accuracy of honest clients, 10 % quantile (%)", "client_accuracy/tenth", True),
    "auc": ("Area under the detection curve (%)", "detection/auc", True),
    "true_alarms": ("Byzantine clients accused (%)", "detection/true_alarms", True),
    "false_alarms": ("Honest clients accused (%)", "detection/false_alarms", False),
}
METRICS = tuple(_METRICS)


def find(folders: Iterable[str | Path]) -> list[Path]:
    """Find the runs in folders, however deep; references of max-recall-drop do not count.

    Raises:
        DataError: If one is not a folder, or there is no run.
    """
    given = [Path(folder) for folder in folders]
    for folder in given:
        if not folder.is_dir():
            raise DataError(f"{folder} is not a folder; give folders with runs in them.")
    found = dict.fromkeys(run.resolve() for folder in given for run in _inside(folder, folder))
    if not found:
        raise DataError(f"no run found in {', '.join(map(str, given))}; a run's folder holds config.yaml.")
    return list(found)


def _inside(folder: Path, top: Path) -> Iterator[Path]:
    path = folder / "config.yaml"
    if path.is_file():
        try:
            config = saved_config(path)
        except DataError:
            if folder == top or (folder / "metrics.csv").exists() or (folder / "summary.json").exists():
                raise
            config = {}  # another program's
        if "federation" in config and "trainer" in config:
            if folder == top or config.get("run_name") != "reference":
                yield folder
            return
    inner = [child for child in folder.iterdir() if child.is_dir() and child.name[0] != "." and not child.is_symlink()]
    for child in sorted(inner, key=lambda child: (len(child.name), child.name)):
        yield from _inside(child, top)


def compare(
    runs: Iterable[Any],
    rows: str | None = None,
    columns: str | None = None,
    panels: Sequence[str] = (),
    metric: str = "accuracy",
) -> "Comparison":
    """Put runs into a table with rows and columns, over seeds; a notebook shows it.

    Args:
        runs: What `train` returned, also for several seeds, and folders of runs, however deep.
        rows: Setting of the rows, such as aggregator or federation.n_byzantine; None: the first one that differs.
        columns: Setting of the columns; None: the next one that differs, if any.
        panels: Settings of the panels.
        metric: accuracy, validation_accuracy, worst_recall (of the least recognised class), mrd (max-recall-drop),
            attack (its success rate), kappa; of the honest clients' accuracies (``data.client_scores``) client_mean,
            client_worst or client_tenth; or how well the rule tells who lies: auc (area under the curve),
            true_alarms, false_alarms.

    Returns:
        The table: ``frame`` is it for pandas, ``plot()`` draws it, ``latex()`` and ``markdown()`` write it.

    Raises:
        SettingError: If an axis is not a setting of the runs, or there is no such metric, or runs with the same
            settings have other results.
        DataError: If there is no run, or a file is broken.
    """
    found = list(_found([runs]))
    if not found:
        raise DataError("compare needs a run, got none; give what fl.train returned, or a folder.")
    return Comparison(found, rows, columns, panels, metric)


def _found(runs: Iterable[Any]) -> Iterator[Path | SavedRun]:
    from lightning_fl.run.python import Run  # not earlier: the commands do without torch

    for run in runs:
        if isinstance(run, str | Path):
            yield from find([run])
        elif isinstance(run, Run):
            yield run.saved()
        elif isinstance(run, Iterable):
            yield from _found(run)
        else:
            raise SettingError(f"compare needs runs of fl.train or folders, got {type(run).__name__}; leave it out.")


@dataclass(frozen=True)
class _Entry:
    """A run, its settings, and those of its twins that are there."""

    run: Path | SavedRun
    config: Config
    twins: Sequence[Path | SavedRun] = ()

    @classmethod
    def read(cls, run: Path | SavedRun) -> "_Entry":
        return cls(run, run.config if isinstance(run, SavedRun) else saved_config(run / "config.yaml"))


def _beside_twins(entries: Sequence[_Entry]) -> list[_Entry]:
    """Put each twin beside its run; those whose run is not there stay as they are."""
    runs = {alike(entry.config) for entry in entries if not entry.config.get("twin")}
    found: list[_Entry] = []
    twins: dict[Hashable, list[Path | SavedRun]] = {}
    for entry in entries:
        of = alike(entry.config | {"twin": None})
        if entry.config.get("twin") and of in runs:
            twins.setdefault(of, []).append(entry.run)
        else:
            found.append(entry)
    return [replace(entry, twins=twins.get(alike(entry.config), ())) for entry in found]


class Comparison:
    """Runs in a table: rows, columns and panels are values of settings; other settings that differ make further panels.

    Args:
        runs: Their folders, or what was read from there.
        rows: Setting of the rows, such as aggregator or partition.alpha; None: the first one that differs.
        columns: Setting of the columns; None: the next one that differs, if any.
        panels: Settings of the panels.
        metric: One of `METRICS`.

    Raises:
        SettingError: If an axis is not a setting of the runs, or there is no such metric, or runs in memory with the
            same settings have other results.
        DataError: If a file is broken.
    """

    rows_by: str
    columns_by: str | None

    def __init__(
        self,
        runs: Sequence[Path | SavedRun],
        rows: str | None = None,
        columns: str | None = None,
        panels: Sequence[str] = (),
        metric: str = "accuracy",
    ):
        if metric not in METRICS:
            raise SettingError(no_such("metric", metric, METRICS))
        self.metric, (self.unit, self._column, self.more_is_better) = metric, _METRICS[metric]
        self._scale = 100 if "%" in self.unit else 1
        entries = self._distinct([_Entry.read(run) for run in runs])
        self.repeated = len(runs) - len(entries)
        entries = _beside_twins(entries)
        configs = comparable([entry.config for entry in entries])
        self._choose_axes(configs, rows, columns, panels)
        self.panel_parts: dict[str, list[str]] = {}  # of each panel: its values of the settings, and what else differs
        keys: list[Key] = [(plain(panel), plain(row), plain(column)) for panel, row, column in self._keys(configs)]
        self.rows_by, self.columns_by = plain(self.rows_by), self.columns_by and plain(self.columns_by)
        self.panels, self.rows, self.columns = (in_order(part) for part in zip(*keys, strict=True))
        at: dict[Key, list[_Entry]] = {}
        for key, entry in zip(keys, entries, strict=True):
            at.setdefault(key, []).append(entry)
        there = [key for key in product(self.panels, self.rows, self.columns) if key in at]
        self.cells = {key: self._cell([entry.run for entry in at[key]]) for key in there}
        self.pairs = [
            pair
            for key, entry in zip(keys, entries, strict=True)
            for twin in entry.twins
            if (pair := self._pair(entry.run, twin, key)) is not None
        ]

    def _choose_axes(
        self, configs: Sequence[Config], rows: str | None, columns: str | None, panels: Sequence[str]
    ) -> None:
        """Take the axes that were asked for, and of the settings that differ those that come first."""
        varied, asked = varying(configs), {rows, columns, *panels} - {None}
        there = {path for config in map(settings, configs) for path, part in config.items() if part.value != "null"}
        for axis in asked - {"aggregator", "adversary"} - there:  # without these: average, no attack
            differ = f"these differ: {', '.join(varied)}" if varied else "the runs differ in nothing but the seed"
            raise SettingError(f"an axis needs a setting of the runs, got {axis}; {differ}.")
        free = [name for name in varied if name not in asked]
        self.rows_by = rows or (free.pop(0) if free else "aggregator")
        self.columns_by = columns or (free.pop(0) if free and rows is None else None)
        self.panels_by = list(panels)

    def _keys(self, configs: Sequence[Config]) -> list[Key]:
        """Name each run's place; settings that differ without being an axis make further panels."""
        axes = [axis for axis in (self.rows_by, self.columns_by, *self.panels_by) if axis]
        rows, keys = list(map(settings, configs)), []
        classes = {path for row in rows for path, part in row.items() if not part.name} | {"aggregator", "adversary"}
        nothing = {axis: named(None, axis) if axis in classes else "null" for axis in axes}
        told = {"seed", *axes, *_following(rows, axes)}
        for row, parts in zip(rows, differing(configs), strict=True):
            of = _by_axis((part for part in parts if part.path not in told), axes)
            values = nothing | {axis: row[axis].value for axis in axes if axis in row and row[axis].value != "null"}
            chosen = {axis: Part(axis, axis.rpartition(".")[2], values[axis]) for axis in axes}
            seen = [*of[""], *chosen.values()]
            label = {axis: ", ".join([values[axis], *texts(_unseen(of[axis], seen))]) for axis in axes}
            more = texts(_unseen(of[""], [*chosen.values()]), axes)
            panel = ", ".join([*(f"{axis}={label[axis]}" for axis in self.panels_by), *more])
            self.panel_parts[plain(panel)] = [*(plain(label[axis]) for axis in self.panels_by), plain(", ".join(more))]
            keys.append((panel, label[self.rows_by], label[self.columns_by] if self.columns_by else ""))
        return keys

    def _distinct(self, entries: Sequence["_Entry"]) -> list["_Entry"]:
        """Among runs with the same settings and seed, keep the newest, of those with a result if there are any."""
        groups: dict[Hashable, list[int]] = {}
        for i, entry in enumerate(entries):
            groups.setdefault(alike(entry.config), []).append(i)
        for group in groups.values():
            results = [run.summary["last_evaluation"] for i in group if isinstance(run := entries[i].run, SavedRun)]
            if any(result != results[0] for result in results):
                raise SettingError(
                    f"compare tells runs apart by their settings, got {len(results)} with the same ones, seed "
                    f"{entries[group[0]].config.get('seed')} and other results; name what differs in each, such as "
                    'run.config["data"]["name"] = "mine".'
                )
        kept = (max(group, key=lambda i: (*self._preference(entries[i].run), i)) for group in groups.values())
        return [entries[i] for i in sorted(kept)]

    def _preference(self, run: Path | SavedRun) -> tuple[bool, bool, float | int]:
        summary = run.summary if isinstance(run, SavedRun) else finished(run) or {}
        completed = summary.get("status") in COMPLETED
        age = inf if isinstance(run, SavedRun) else (run / "config.yaml").stat().st_mtime_ns
        return completed, completed and self._value(summary) is not None, age

    def _cell(self, runs: Sequence[Path | SavedRun]) -> Group:
        values, lost, curves = [], Counter[str](), []
        for given in runs:
            if not (isinstance(given, SavedRun) or (given / "summary.json").exists()):
                lost["unfinished"] += 1
                continue
            run = given if isinstance(given, SavedRun) else SavedRun.read(given)
            value = self._value(run.summary)
            if run.status in COMPLETED and value is not None:
                values.append(self._scale * value)
            else:
                lost[f"{self.metric} not recorded" if run.status in COMPLETED else run.status] += 1
            rows = run.evaluations if self.metric in ("accuracy", "worst_recall") else run.metrics
            points = {int(row["round"]): self._scale * y for row in rows if (y := self._at(row)) is not None}
            curves.append((points, run.diverged))
        return Group(values, lost, curves, self._scale == 100)

    def _value(self, summary: Mapping[str, Any]) -> float | None:
        """The metric in a summary; None where nothing of it is measured."""
        if self.metric == "worst_recall":
            return least_recall(summary["recall"])
        group, _, name = self._column.rpartition("/")
        found: Mapping[str, float | None] = (summary.get(group) or {}) if group else summary
        return found.get("mean" if self.metric == "kappa" else name)

    def _at(self, row: Mapping[str, float]) -> float | None:
        """The metric in a row of ``metrics.csv``."""
        if self.metric == "worst_recall":
            return least_recall(share for name, share in row.items() if name.startswith("recall/"))
        return row.get(self._column)

    def _pair(self, run: Path | SavedRun, twin: Path | SavedRun, place: Key) -> Pair | None:
        """Pair a run with its twin; None where one has no result, or results are no percentages."""
        values = [value for which in (run, twin) for value in self._cell([which]).values]
        if self._scale != 100 or len(values) < 2:
            return None
        return Pair(", ".join(filter(None, place)), values[0], values[1], self.cells[place].half)

    def worst(self, panel: str, row: str) -> str:
        """Give the worst cell over the panel's columns; a diverged run is worse than any number."""
        cells = [self.cells.get((panel, row, column)) for column in self._columns_of(panel)]
        there = [cell for cell in cells if cell is not None]
        if any(cell.lost["diverged"] for cell in there):
            return "diverged"
        measured = [cell for cell in there if cell.mean is not None]
        if not measured:
            return "-"
        pick = min if self.more_is_better else max
        of = f" ({len(measured)} of {len(cells)} columns)" if len(measured) < len(cells) else ""
        return f"{pick(measured, key=lambda cell: cell.mean or 0.0)}{of}"

    def _columns_of(self, panel: str) -> list[str]:
        return [column for column in self.columns if any((panel, row, column) in self.cells for row in self.rows)]

    def tables(self, worst: bool) -> list[tuple[str, list[str], list[list[str]], set[Place]]]:
        """List title, header, rows and best cells of each panel's table."""
        found = []
        for panel in self.panels:
            columns = self._columns_of(panel)
            header = [self.rows_by, *(column or self.unit for column in columns), *(["worst"] if worst else [])]
            lines, means = [], []
            for row in self.rows:
                cells = [self.cells.get((panel, row, column)) for column in columns]
                if any(cells):
                    whole = [None if cell is None or cell.lost["diverged"] else cell.mean for cell in cells]
                    means.append([None, *whole])
                    texts = ["-" if cell is None else str(cell) for cell in cells]
                    lines.append([row, *texts, *([self.worst(panel, row)] if worst else [])])
            best = best_places(means, [self.more_is_better] * (1 + len(columns)))
            found.append((panel, header, lines, best))
        return found

    @property
    def caption(self) -> str:
        """Say what the numbers are."""
        counts = sorted({len(cell.values) for cell in self.cells.values()})
        runs = ("" if len(counts) == 1 else f"{counts[0]} to ") + many(counts[-1], "completed run")
        several = "; ± half of the 95 % interval of the mean (Student's t over seeds)" if counts[-1] > 1 else ""
        repeated = f"; {many(self.repeated, 'older run')} of the same settings left out" if self.repeated else ""
        by = f", columns: {self.columns_by}" if self.columns_by else ""
        return f"{self.unit}, mean of {runs}{several}. Rows: {self.rows_by}{by}{repeated}."

    def report(self, worst: bool = False) -> Report:
        """Put the tables into a report, which has every form."""
        columns, rows = self.records()
        records = [columns, *([*row[:-1], " ".join(f"{value:.6g}" for value in row[-1])] for row in rows)]
        sections = [Section(*parts) for parts in self.tables(worst)]
        sections += [Section("", remarks=conclusion(self.pairs))] if self.pairs else []
        return Report("Runs compared", [markdown_cell(self.caption)], sections, records)

    def text(self, worst: bool = False) -> str:
        """Write the tables for the terminal."""
        return self.report(worst).terminal()

    def markdown(self, worst: bool = False) -> str:
        """Write the tables in Markdown."""
        return self.report(worst).markdown(level=2)

    def latex(self, worst: bool = False) -> str:
        """Write the tables in LaTeX, for the package booktabs."""
        return self.report(worst).latex()

    def records(self) -> tuple[list[str], list[list[Any]]]:
        """List the columns, and one row per cell: place, number of runs, mean, its interval, lost runs, all values."""
        every = Counter[str]()
        for cell in self.cells.values():
            every.update(cell.lost)
        lost = list(dict.fromkeys(["diverged", "interrupted", "unfinished", *every]))
        rows = []
        for key, cell in self.cells.items():
            ends = (
                [None] * 2 if cell.half is None or cell.mean is None else [cell.mean - cell.half, cell.mean + cell.half]
            )
            rows.append([*key, len(cell.values), cell.mean, *ends, *(cell.lost[name] for name in lost), cell.values])
        places = ["panel", self.rows_by, self.columns_by or "column"]
        return [*places, "runs", "mean", "low", "high", *lost, "values"], rows

    @property
    def frame(self) -> "DataFrame":
        """What `records` lists, for pandas."""
        from pandas import DataFrame

        columns, rows = self.records()
        return DataFrame(rows, columns=columns)

    def csv(self) -> str:
        """Write what `records` lists."""
        return self.report().csv()

    def plot(self) -> "Pictures":
        """Draw the tables as heat maps."""
        return plot.Pictures(plot.named("compare", self._maps()))

    def _maps(self) -> "list[Figure]":
        shown = {key: (self.cells[key].mean, str(self.cells[key])) for key in self._drawn()}
        return plot.grouped(shown, self.columns, self.rows_by, self.columns_by or "", self.unit) if shown else []

    __repr__ = text

    def _repr_html_(self) -> str:
        return self.report().html()

    def write(self, folder: Path, worst: bool = False) -> list[Path]:
        """Write tables (Markdown, CSV, LaTeX, HTML) and pictures into a folder.

        Returns:
            The files.
        """
        drawn = (plot.grouped_curves(curves, self.rows_by, self.unit, t_quantile) for curves in self._alike())
        figures = {"compare": self._maps(), "curves": [figure for some in drawn for figure in some]}
        return replace(self.report(worst), figures=figures).write(folder, "compare")

    def _drawn(self) -> list[Key]:
        """List the cells that pictures show: of several panels those with one cell compare nothing."""
        size = Counter(panel for panel, _, _ in self.cells)
        return [key for key in self.cells if len(size) == 1 or size[key[0]] > 1]

    def _alike(self) -> Iterator[dict[Key, Sequence[tuple[dict[int, float], bool]]]]:
        """Yield curves that are drawn alike: of no more rows than a reader can tell apart."""
        curves = {key: self.cells[key].curves for key in self._drawn()}
        curves = {key: runs for key, runs in curves.items() if any(points for points, _ in runs)}
        rows = [row for row in self.rows if any(key[1] == row for key in curves)]
        for i in range(0, len(rows), plot.MOST_LINES):
            keys = product(self.panels, rows[i : i + plot.MOST_LINES], self.columns)
            yield {key: curves[key] for key in keys if key in curves}


def _by_axis(parts: Iterable[Part], axes: Sequence[str]) -> dict[str, list[Part]]:
    """Sort settings by the innermost axis of which they are a part; "": of none."""
    found: dict[str, list[Part]] = {axis: [] for axis in ["", *axes]}
    for part in parts:
        inside = [axis for axis in axes if f"{part.path}.".startswith(f"{axis}.")]
        found[max(inside, key=len, default="")].append(part)
    return found


def _unseen(parts: Iterable[Part], seen: Sequence[Part]) -> list[Part]:
    """What is not said elsewhere."""
    return [part for part in parts if not any(same(part, other) for other in seen)]


def _following(rows: Sequence[dict[str, Part]], axes: Sequence[str]) -> set[str]:
    """Name the settings that have an axis's value in every run, as a rule's f may have the number of attackers."""
    return {
        path
        for path in set().union(*rows)
        for axis in axes
        if all(path not in row or (axis in row and row[path].value == row[axis].value) for row in rows)
    }


def varying(configs: Sequence[Config]) -> list[str]:
    """Name the settings that differ between runs, except the seed: a group if its parts differ, else the setting."""
    paths = ordered(part.path for parts in differing(configs) for part in parts)
    follow = {"seed", "f"} if any(path.endswith(".f") for path in paths) else {"seed"}  # the rules' f follows the run's
    return [path for path in paths if path not in follow and not any(path.startswith(f"{of}.") for of in paths)]


def in_order(labels: Iterable[str]) -> list[str]:
    """List each label once: words as they come, then numbers by size.

    >>> in_order(["0.66", "null", "0.01"])
    ['null', '0.01', '0.66']
    """
    return sorted(dict.fromkeys(labels), key=lambda label: -inf if (size := number(label)) is None else size)
