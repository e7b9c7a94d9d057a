"""Pictures of many runs in groups: a heat map for two axes, curves with bands."""

from collections.abc import Callable, Mapping, Sequence
from math import sqrt

import numpy as np
from matplotlib.figure import Figure

from lightning_fl.plot._parts import DPI, MAP, PALETTE, STYLES, name_rows, whole, wrapped

MOST_LINES = len(PALETTE)
MOST_AXES = 12


def grouped(
    shown: Mapping[tuple[str, str, str], tuple[float | None, str]],
    across: Sequence[str],
    rows: str,
    columns: str,
    unit: str,
) -> Figure:
    """Draw a heat map per panel; the numbers are written into the cells, so that it can be read in black and white.

    Args:
        shown: By panel, row and column the mean (None: no result) and what to write into the cell.
        across: The columns, in order.
        rows: What the rows are.
        columns: What the columns are.
        unit: What the numbers are.
    """
    panels: dict[str, dict[str, dict[str, tuple[float | None, str]]]] = {}
    for (panel, row, column), cell in shown.items():
        panels.setdefault(panel, {}).setdefault(row, {})[column] = cell
    widest = max(len(text) for _, text in shown.values())
    depth = sum(1.3 + 0.42 * len(table) for table in panels.values())
    width = 3.2 + max(0.085 * min(widest, 18) + 0.3, 1.1) * max(len(across), 2)
    figure = Figure(figsize=(min(width, 16), depth), dpi=DPI, layout="constrained")
    means = [mean for mean, _ in shown.values() if mean is not None]
    top = 100.0 if "%" in unit else max(means, default=1.0) or 1.0
    grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=[1.3 + len(table) for table in panels.values()])
    for (panel, table), axes in zip(panels.items(), grid.flat, strict=True):
        values = np.full((len(table), len(across)), np.nan)
        for i, cells in enumerate(table.values()):
            for j, name in enumerate(across):
                mean, text = cells.get(name, (None, "-"))
                values[i, j] = np.nan if mean is None else mean
                dark = mean is not None and mean / top < 0.5
                axes.text(
                    j,
                    i,
                    text.replace(" (", "\n("),
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="white" if dark else "black",
                )
        image = axes.imshow(values, cmap=MAP, vmin=0, vmax=top, aspect="auto", interpolation="nearest")
        axes.set_title(wrapped(panel, round(11 * (min(width, 16) - 2.5))), fontsize=10)
        axes.set(ylabel=rows, xlabel=columns)
        axes.set_xticks(range(len(across)), [wrapped(name, 18) for name in across])
        name_rows(axes, list(table))
    figure.colorbar(image, ax=list(grid.flat), label=unit, aspect=30)
    return figure


def grouped_curves(
    curves: Mapping[tuple[str, str, str], Sequence[tuple[Mapping[int, float], bool]]],
    rows: str,
    unit: str,
    quantile: Callable[[int], float],
) -> Figure:
    """Draw each group's mean over rounds with its 95 % interval, a pair of axes per panel and column.

    A line ends where the first of its runs ends: the mean of the remaining ones would mean something else.

    A reader can tell `MOST_LINES` rows in `MOST_AXES` pairs of axes apart.

    Args:
        curves: By panel, row and column: the points of each run, and whether it diverged.
        rows: What the lines are.
        unit: What the numbers are.
        quantile: Student's t by degrees of freedom.
    """
    panels, columns = (list(dict.fromkeys(names)) for names in (zip(*[(p, c) for p, _, c in curves], strict=True)))
    there = {(panel, column) for panel, _, column in curves}
    places = [(panel, column) for panel in panels for column in columns if (panel, column) in there]
    names = list(dict.fromkeys(row for _, row, _ in curves))
    wide = min(len(places), 3 if len(panels) == 1 or len(columns) > 3 else max(len(columns), 2))
    deep = -(-len(places) // wide)
    figure = Figure(figsize=(3.0 + 3.6 * wide, max(3.6, 2.9 * deep)), dpi=DPI, layout="constrained")
    grid = list(figure.subplots(deep, wide, squeeze=False, sharex=True, sharey=True).flat)
    for axes in grid[len(places) :]:
        axes.remove()
    for i, ((panel, column), axes) in enumerate(zip(places, grid, strict=False)):
        axes.set_title(wrapped(", ".join(part for part in (panel, column) if part), 40), fontsize=9)
        lowest = i + wide >= len(places)  # nothing stands below it
        axes.set(xlabel="Round" if lowest else "", ylabel="" if i % wide else wrapped(unit, 30))
        axes.tick_params(labelbottom=lowest)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.xaxis.set_major_locator(whole())
        if "%" in unit:
            axes.set_ylim(-2, 102)
        for number, name in enumerate(names):
            runs = [(points, lost) for points, lost in curves.get((panel, name, column), []) if points]
            if runs:
                _line(axes, runs, name, number, quantile)
    handles = {
        label: line
        for axes in grid[: len(places)]
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(), [wrapped(name, 26) for name in handles], title=rows, loc="outside right center", frameon=False
    )
    return figure


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
    axes.plot(rounds, means, label=name, linewidth=1.8, **style)  # type: ignore[attr-defined]
    if len(runs) > 1 and rounds:
        half = quantile(len(runs) - 1) * table.std(0, ddof=1) / sqrt(len(runs))
        axes.fill_between(rounds, means - half, means + half, color=style["color"], alpha=0.2, linewidth=0)  # type: ignore[attr-defined]
    if rounds and any(lost for _, lost in runs):
        axes.plot(rounds[-1:], means[-1:], marker="X", markersize=8, color=style["color"])  # type: ignore[attr-defined]
