"""Pictures of many runs in groups: a heat map for two axes, curves with bands."""

import re
from collections.abc import Callable, Mapping, Sequence
from math import sqrt

import numpy as np
from matplotlib.figure import Figure

from lightning_fl.plot._parts import (
    PALETTE,
    PHONE,
    STYLES,
    heat_map,
    height,
    legend_below,
    name_rows,
    on_one_scale,
    one_axes,
    pieces,
    slant,
    wrapped,
)

MOST_LINES = len(PALETTE)
_LETTERS = 18  # of a row's name to a line


def grouped(
    shown: Mapping[tuple[str, str, str], tuple[float | None, str]],
    across: Sequence[str],
    rows: str,
    columns: str,
    unit: str,
) -> list[Figure]:
    """Draw a heat map per panel; the numbers are written into the cells, so that it can be read in black and white.

    Args:
        shown: For each panel, row and column the mean (None: no result) and what to write into the cell.
        across: The columns, in order; many are spread over several maps.
        rows: What the rows are.
        columns: What the columns are.
        unit: What the numbers are.
    """
    panels: dict[str, dict[str, dict[str, tuple[float | None, str]]]] = {}
    texts = {place: _cell(text) for place, (_, text) in shown.items()}
    for (panel, row, column), (mean, _) in shown.items():
        panels.setdefault(panel, {}).setdefault(row, {})[column] = mean, texts[panel, row, column]
    top = 100.0 if "%" in unit else max((mean for mean, _ in shown.values() if mean is not None), default=1.0) or 1.0
    letters = max(3, *(len(line) for text in texts.values() for line in text.split("\n")))
    high = 0.18 * max(2, *(text.count("\n") + 1 for text in texts.values())) + 0.1
    figures = []
    for panel, table in panels.items():
        names = [_cell(name) for name in table]
        left = 0.3 + 0.08 * max(len(line) for name in names for line in name.split("\n"))
        for piece in pieces(across, letters, PHONE - left):
            cells = [[row.get(column, (None, "-")) for column in piece] for row in table.values()]
            means = np.array([[mean for mean, _ in line] for line in cells], float)
            size = PHONE, 2.4 + max(high * len(table), height(names)) + _more(panel)
            figure, axes = one_axes(columns, rows, wrapped(panel, 28), size)
            heat_map(figure, axes, means, unit, [[text for _, text in line] for line in cells], top, bar="bottom")
            axes.set_xticks(range(len(piece)), [wrapped(name, _LETTERS) for name in piece], **slant(piece, letters))
            name_rows(axes, names)
            figures.append(figure)
    return figures


def grouped_curves(
    curves: Mapping[tuple[str, str, str], Sequence[tuple[Mapping[int, float], bool]]],
    rows: str,
    unit: str,
    quantile: Callable[[int], float],
) -> list[Figure]:
    """Draw each group's mean over rounds with its 95 % interval, a picture per panel and column.

    A line ends where the first of its runs ends: the mean of the remaining ones would mean something else.

    A reader can tell `MOST_LINES` rows in one picture apart.

    Args:
        curves: For each panel, row and column the points of each run, and whether it diverged.
        rows: What the lines are.
        unit: What the numbers are.
        quantile: Student's t by degrees of freedom.
    """
    names = list(dict.fromkeys(row for _, row, _ in curves))
    figures = []
    for panel, column in dict.fromkeys((panel, column) for panel, _, column in curves):
        title = ", ".join(part for part in (panel, column) if part)
        high = 3.8 + 0.2 * len(names) + _more(title)
        figure, axes = one_axes("Round", wrapped(unit, 40), title, (PHONE, high))
        for number, name in enumerate(names):
            runs = [(points, lost) for points, lost in curves.get((panel, name, column), []) if points]
            if runs:
                _line(axes, runs, name, number, quantile)
        if "%" in unit:
            axes.set_ylim(-2, 102)
        legend_below(axes, rows)
        figures.append(figure)
    if "%" not in unit:
        on_one_scale(figures)
    return figures


def _more(title: str) -> float:
    """Inches for the lines of a title of many settings after its second one."""
    return 0.2 * max(0, len(title) // 25 - 2)


def _cell(text: str) -> str:
    """Put what stands in brackets on a line of its own; a long rule's name breaks before the rule inside it."""
    lines = text.replace(" (", "\n(").split("\n")
    lines = [re.sub(r"(?<=\w)\(", "\n(", line) if len(line) > _LETTERS else line for line in lines]
    return wrapped("\n".join(lines), _LETTERS)


def _line(
    axes: object,
    runs: Sequence[tuple[Mapping[int, float], bool]],
    name: str,
    number: int,
    quantile: Callable[[int], float],
) -> None:
    rounds = sorted(set.intersection(*(set(points) for points, _ in runs)))
    table = np.array([[points[t] for t in rounds] for points, _ in runs])
    means = table.mean(0)
    style = {"color": PALETTE[number % len(PALETTE)], "linestyle": STYLES[number % len(STYLES)]}
    axes.plot(rounds, means, label=wrapped(name, 28), linewidth=1.8, **style)  # type: ignore[attr-defined]
    if len(runs) > 1 and rounds:
        half = quantile(len(runs) - 1) * table.std(0, ddof=1) / sqrt(len(runs))
        axes.fill_between(rounds, means - half, means + half, color=style["color"], alpha=0.2, linewidth=0)  # type: ignore[attr-defined]
    if rounds and any(lost for _, lost in runs):
        axes.plot(rounds[-1:], means[-1:], marker="X", markersize=8, color=style["color"])  # type: ignore[attr-defined]
