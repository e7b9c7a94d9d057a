"""Pictures of a table: against the paper, over a parameter, or by name."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from lightning_fl.plot._parts import MARKERS, PALETTE, STYLES, height, legend_beside, name_rows, one_axes, wrapped


@dataclass(frozen=True)
class Compared:
    """A cell of a table and what was measured.

    Args:
        row, column: Where it stands.
        paper, deviation: What the paper prints; a deviation of 0 is none.
        measured: A number a seed.
        apart: Whether the two disagree.
    """

    row: str
    column: str
    paper: float
    deviation: float
    measured: Sequence[float]
    apart: bool


def against_paper(cells: Sequence[Compared], title: str) -> Figure:
    """Draw measured numbers against the paper's, equal ones on the diagonal; bars are one deviation.

    Args:
        cells: What to draw; those apart are named.
        title: What the table is.
    """
    figure, axes = one_axes("Paper", "Measured", title, size=(8.0, 6.0))
    ends = [low for cell in cells for low in (cell.paper, *cell.measured)]
    axes.axline((min(ends), min(ends)), slope=1, color="grey", linewidth=1, linestyle=":", label="equal")
    for number, column in enumerate(dict.fromkeys(cell.column for cell in cells)):
        own = [cell for cell in cells if cell.column == column]
        means, deviations = _spread(cell.measured for cell in own)
        axes.errorbar(
            [cell.paper for cell in own],
            means,
            xerr=[cell.deviation for cell in own],
            yerr=deviations,
            linestyle="",
            alpha=0.8,
            label=column,
            **_point(number),
        )
    named = sorted((float(np.mean(cell.measured)), cell.paper, cell.row) for cell in cells if cell.apart)
    for number, (mean, paper, row) in enumerate(named):  # neighbours above and below their points
        axes.annotate(row, (paper, mean), (5, 4 if number % 2 else -9), textcoords="offset points", fontsize=7)
    legend_beside(axes)
    return figure


def over_parameter(
    lines: Mapping[str, Mapping[str, Sequence[float]]], ticks: Sequence[str], x: str, y: str, title: str
) -> Figure:
    """Draw lines over the values of a parameter, with bars of one deviation.

    Args:
        lines: Measured numbers of each line and tick; infinite ones are left out.
        ticks: What the lines go over, in order.
        x: What the ticks are.
        y: What the numbers are.
        title: What the table is.
    """
    figure, axes = one_axes(x, wrapped(y, 40), title)
    for number, (name, line) in enumerate(lines.items()):
        places, means, deviations = _finite(line, ticks)
        style = {"linestyle": STYLES[number // len(PALETTE) % len(STYLES)], "linewidth": 1.4}
        axes.errorbar(places, means, yerr=deviations, label=name, **style, **_point(number))
    axes.set_xticks(range(len(ticks)), ticks)
    legend_beside(axes)
    return figure


def by_name(lines: Mapping[str, Mapping[str, Sequence[float]]], names: Sequence[str], x: str, title: str) -> Figure:
    """Draw points beside names, with bars of one deviation.

    Args:
        lines: Measured numbers of each group and name; infinite ones are left out.
        names: What stands below each other, in order.
        x: What the numbers are.
        title: What the table is.
    """
    figure, axes = one_axes(x, "", title, size=(8.0, 1.6 + height(names)))
    for number, (group, line) in enumerate(lines.items()):
        places, means, deviations = _finite(line, names)
        axes.errorbar(means, places, xerr=deviations, linestyle="", label=group, **_point(number))
    name_rows(axes, names)
    if len(lines) > 1:
        legend_beside(axes)
    return figure


def _finite(line: Mapping[str, Sequence[float]], names: Sequence[str]) -> tuple[list[int], list[float], list[float]]:
    """Places that have a number, with mean and deviation there."""
    finite = [[value for value in line.get(name, []) if np.isfinite(value)] for name in names]
    places = [place for place, values in enumerate(finite) if values]
    return places, *_spread(finite[place] for place in places)


def _spread(measured: Iterable[Sequence[float]]) -> tuple[list[float], list[float]]:
    """Mean and deviation of each; 0 for one number."""
    every = list(measured)
    deviations = [float(np.std(values, ddof=1)) if len(values) > 1 else 0.0 for values in every]
    return [float(np.mean(values)) for values in every], deviations


def _point(number: int) -> dict[str, object]:
    return {
        "marker": MARKERS[number % len(MARKERS)],
        "color": PALETTE[number % len(PALETTE)],
        "markersize": 5,
        "elinewidth": 0.8,
    }
