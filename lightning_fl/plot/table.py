"""Pictures of a table: against the paper, over a parameter, or by name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lightning_fl.plot._parts import MARKERS, PALETTE, PHONE, STYLES, height, legend_below, name_rows, one_axes, wrapped

_LETTERS = 18  # of a row's name to a line, beside a picture of a phone's width
Bar = Callable[[Sequence[float]], float]


@dataclass(frozen=True)
class Compared:
    """A cell of a table and what was measured.

    Args:
        row, column: Its place in the table.
        paper, deviation: What the paper prints; a deviation of 0 is none.
        measured: One number per seed.
        apart: Whether the two disagree.
    """

    row: str
    column: str
    paper: float
    deviation: float
    measured: Sequence[float]
    apart: bool


def against_paper(cells: Sequence[Compared], what: str, title: str) -> Figure:
    """Draw how much measured numbers differ from the paper's, with bars of one of the paper's standard deviations.

    Args:
        cells: What to draw; those apart are filled.
        what: What the numbers are.
        title: What the table is.
    """
    rows, columns = (list(dict.fromkeys(names)) for names in ([c.row for c in cells], [c.column for c in cells]))
    inches = max(height(rows, _LETTERS), 0.09 * len(rows) * len(columns))
    figure, axes = _beside_names(wrapped(f"Measured less the paper's: {what}", 30), title, inches, len(columns))
    axes.axvline(0, color="grey", linewidth=1)
    for number, column in enumerate(columns):
        shift = _shift(number, len(columns))
        for later, apart in enumerate(sorted({cell.apart for cell in cells if cell.column == column})):
            own = [cell for cell in cells if (cell.column, cell.apart) == (column, apart)]
            axes.errorbar(
                [np.mean(cell.measured) - cell.paper for cell in own],
                [rows.index(cell.row) + shift for cell in own],
                xerr=[cell.deviation for cell in own],
                linestyle="",
                label=None if later else column,
                **_point(number) | ({} if apart else {"markerfacecolor": "white"}),
            )
    for place in range(1, len(rows)):
        axes.axhline(place - 0.5, color="grey", linewidth=0.5, alpha=0.3)
    axes.grid(visible=False, axis="y")
    name_rows(axes, rows, _LETTERS)
    legend_below(axes, "filled: apart")
    return figure


def over_parameter(
    lines: Mapping[str, Mapping[str, Sequence[float]]], ticks: Sequence[str], bar: Bar, x: str, y: str, title: str
) -> Figure:
    """Draw lines over the values of a parameter.

    Args:
        lines: Measured numbers of each line and tick; infinite ones are left out.
        ticks: What the lines go over, in order.
        bar: How far a bar reaches to either side of the mean of several numbers.
        x: What the ticks are.
        y: What the numbers are.
        title: What the table is.
    """
    figure, axes = one_axes(wrapped(x, 36), wrapped(y, 40), title, (PHONE, 4.2 + 0.2 * len(lines)))
    for number, (name, line) in enumerate(lines.items()):
        places, means, halves = _finite(line, ticks, bar)
        style = {"linestyle": STYLES[number // len(PALETTE) % len(STYLES)], "linewidth": 1.4}
        axes.errorbar(places, means, yerr=halves, label=name, **style, **_point(number))
    axes.set_xticks(range(len(ticks)), ticks)
    if "%" in y:
        axes.set_ylim(*_percent(axes.get_ylim()))
    legend_below(axes)
    return figure


def by_name(
    lines: Mapping[str, Mapping[str, Sequence[float]]], names: Sequence[str], bar: Bar, x: str, title: str
) -> Figure:
    """Draw points beside names, those of one name one below the other.

    Args:
        lines: Measured numbers of each group and name; infinite ones are left out.
        names: The names, from top to bottom.
        bar: How far a bar reaches to either side of the mean of several numbers.
        x: What the numbers are.
        title: What the table is.
    """
    figure, axes = _beside_names(wrapped(x, 30), title, height(names, _LETTERS), len(lines))
    for number, (group, line) in enumerate(lines.items()):
        places, means, halves = _finite(line, names, bar)
        shift = _shift(number, len(lines))
        axes.errorbar(
            means, [place + shift for place in places], xerr=halves, linestyle="", label=group, **_point(number)
        )
    name_rows(axes, names, _LETTERS)
    if "%" in x:
        axes.set_xlim(*_percent(axes.get_xlim()))
    if len(lines) > 1:
        legend_below(axes)
    return figure


def _beside_names(x: str, title: str, inches: float, labels: int) -> tuple[Figure, Any]:
    """Make axes for points beside names, which take so many inches, above a legend of so many labels."""
    return one_axes(x, "", wrapped(title, 28), (PHONE, 2.0 + inches + 0.2 * labels))


def _percent(limits: tuple[float, float]) -> tuple[float, float]:
    """Cut an axis to where a share can be; a bar over few seeds may reach far beyond."""
    return max(limits[0], -2.0), min(limits[1], 102.0)


def _finite(
    line: Mapping[str, Sequence[float]], names: Sequence[str], bar: Bar
) -> tuple[list[int], list[float], list[float]]:
    """List the places that have a number, with the mean there and how far its bar reaches."""
    finite = [[value for value in line.get(name, []) if np.isfinite(value)] for name in names]
    there = [(place, float(np.mean(values)), values) for place, values in enumerate(finite) if values]
    halves = [bar(values) if len(values) > 1 else 0.0 for _, _, values in there]
    return [place for place, _, _ in there], [value for _, value, _ in there], halves


def _shift(number: int, of: int) -> float:
    """Where in its row, which is 1 high, one of several points is."""
    return 0.8 * ((number + 0.5) / of - 0.5)


def _point(number: int) -> dict[str, object]:
    return {
        "marker": MARKERS[number % len(MARKERS)],
        "color": PALETTE[number % len(PALETTE)],
        "markersize": 5,
        "elinewidth": 0.8,
    }
