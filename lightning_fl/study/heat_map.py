"""The best rule over any two settings: a map whose cells name it, as studies of robustness over f and skew show it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lightning_fl import plot
from lightning_fl.errors import SettingError
from lightning_fl.run.saved import SavedRun
from lightning_fl.study.compare import Comparison, in_order
from lightning_fl.study.report import Report, Section
from lightning_fl.tables import cell as markdown_cell
from lightning_fl.text import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Best(NamedTuple):
    """The best rule of a cell, the attack that hurts it most, and its result under that one."""

    rule: str
    attack: str
    mean: float
    text: str


class HeatMap:
    """For each value of two settings, the rule that does best under its own worst attack.

    A rule competes in a cell if all its runs there completed, under every attack that any rule met there.

    Args:
        runs: Their folders, or what was read from there.
        rows: Setting of the rows, such as f.
        columns: Setting of the columns, such as partition.gamma.
        panels: Settings that make several maps; others that differ do, too.
        metric: Name of what is compared, as in `compare`.

    Raises:
        SettingError: If the rows or columns are missing, are the rule or the attack, or no setting of the runs.
        DataError: If a file is broken.
    """

    def __init__(
        self,
        runs: Sequence[Path | SavedRun],
        rows: str | None,
        columns: str | None,
        panels: Sequence[str] = (),
        metric: str = "accuracy",
    ):
        if rows is None or columns is None or {rows, columns, *panels} & {"aggregator", "adversary"}:
            raise SettingError(
                f"a map shows the best aggregator under its worst adversary and needs two other settings, got rows "
                f"{rows} and columns {columns}; give such as --rows f --columns partition.alpha."
            )
        self.rows_by, self.columns_by = plain(rows), plain(columns)
        self.runs = Comparison(runs, "aggregator", "adversary", [rows, columns, *panels], metric)
        self.cells: dict[tuple[str, str, str], Best | None] = {}
        for panel, (row, column, *values, rest) in self.runs.panel_parts.items():
            names = [f"{plain(name)}={value}" for name, value in zip(panels, values, strict=True)]
            self.cells[", ".join(filter(None, [*names, rest])), row, column] = self._best(panel)
        self.panels, self.rows, self.columns = map(in_order, zip(*self.cells, strict=True))

    def _best(self, panel: str) -> Best | None:
        """Find the best rule among the runs of one cell; None if none has all results."""
        rules, attacks, cells = self.runs.rows, self.runs.columns, self.runs.cells
        met = [attack for attack in attacks if any((panel, rule, attack) in cells for rule in rules)]
        sign = 1 if self.runs.more_is_better else -1
        worst = []
        for rule in rules:
            groups = [(attack, cells.get((panel, rule, attack))) for attack in met]
            found = [
                Best(rule, attack, group.mean, f"{group} ({rule})")
                for attack, group in groups
                if group is not None and group.mean is not None and not group.lost
            ]
            if len(found) == len(met):
                worst.append(min(found, key=lambda one: sign * one.mean))
        return max(worst, key=lambda one: sign * one.mean, default=None)

    def report(self) -> Report:
        """Put the maps into a report, which has every form."""
        sections = []
        for panel in self.panels:
            rows = [row for row in self.rows if any((panel, row, column) in self.cells for column in self.columns)]
            cells = [[self.cells.get((panel, row, column)) for column in self.columns] for row in rows]
            lines = [[row, *(c.text if c else "-" for c in line)] for row, line in zip(rows, cells, strict=True)]
            sections.append(Section(panel, [self.rows_by, *self.columns], lines))
        names = ["panel", self.rows_by, self.columns_by, "rule", "attack", self.runs.metric]
        records = [[*place, best.rule, best.attack, best.mean] for place, best in self.cells.items() if best]
        caption = (
            f"{self.runs.unit} of the best rule under its worst attack; rules with a missing or lost run do not "
            f"compete. Rows: {self.rows_by}, columns: {self.columns_by}."
        )
        return Report("The best rule", [markdown_cell(caption)], sections, [names, *records])

    def figures(self) -> "list[Figure]":
        """Draw the maps."""
        places = [(p, r, c) for p in self.panels for r in self.rows for c in self.columns if (p, r, c) in self.cells]
        shown = {place: (best.mean, best.text) if (best := self.cells[place]) else (None, "-") for place in places}
        return plot.grouped(shown, self.columns, self.rows_by, self.columns_by, self.runs.unit)

    def write(self, folder: Path) -> list[Path]:
        """Write the maps (Markdown, CSV, LaTeX, HTML, picture) into a folder, and name the files."""
        return replace(self.report(), figures={"map": self.figures()}).write(folder, "map")
