"""Pictures of several runs side by side."""

from collections.abc import Collection, Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from lightning_fl.plot._parts import (
    BYZANTINE,
    HONEST,
    PALETTE,
    PHONE,
    STYLES,
    Row,
    class_ticks,
    heat_map,
    height,
    legend_below,
    name_rows,
    one_axes,
    round_marker,
    wrapped,
)

_LETTERS = 18  # of a run's name to a line, beside a picture of a phone's width


def accuracies(runs: Mapping[str, Sequence[Row]], title: str, diverged: Collection[str] = ()) -> Figure:
    """Draw the accuracy of several runs over rounds.

    Args:
        runs: Rows of each run's ``metrics.csv`` by its label.
        title: What is compared.
        diverged: Labels of runs that ended early; a cross marks their end.
    """
    return _over_rounds(runs, "accuracy", "Accuracy (%)", title, diverged)


def success_rates(runs: Mapping[str, Sequence[Row]], title: str, diverged: Collection[str] = ()) -> Figure:
    """Draw the success rate of several runs' backdoors over rounds.

    Args:
        runs: Rows of each run's ``metrics.csv`` by its label; runs without a backdoor are left out, and the others have
            the colours of a picture of all.
        title: What is compared.
        diverged: Labels of runs that ended early; a cross marks their end.
    """
    return _over_rounds(runs, "attack/success_rate", "Attack success rate (%)", title, diverged, every=False)


def _over_rounds(
    runs: Mapping[str, Sequence[Row]],
    column: str,
    axis: str,
    title: str,
    diverged: Collection[str],
    every: bool = True,  # or only those with points, in the colours that they have among all
) -> Figure:
    names = {label: wrapped(f"{label} (diverged)" if label in diverged else label, 28) for label in runs}
    lines = sum(name.count("\n") + 1 for name in names.values())
    figure, axes = one_axes("Round", axis, title, size=(PHONE, 3.4 + 0.2 * lines))
    few = len(runs) <= len(PALETTE)
    colours = PALETTE if few else mpl.colormaps["viridis"](np.linspace(0, 0.92, len(runs)))
    for i, (label, rows) in enumerate(runs.items()):
        points = [(int(row["round"]), 100 * float(row[column])) for row in rows if row.get(column) is not None]
        if not (points or every):
            continue
        rounds, values = [x for x, _ in points], [y for _, y in points]
        style = {"color": colours[i], "linestyle": STYLES[i % 4], "marker": round_marker(rounds)}
        axes.plot(rounds, values, label=names[label], linewidth=1.8, **style)
        if label in diverged and points:
            axes.plot(rounds[-1:], values[-1:], marker="X", markersize=9, color=colours[i])
    axes.set_ylim(-2, 102)
    legend_below(axes)
    return figure


def recalls(
    runs: Mapping[str, Sequence[float | None] | str], title: str, classes: Sequence[str] | None = None
) -> Figure:
    """Draw the recall of each class by several runs.

    Args:
        runs: Recalls of each run by its label, in [0, 1], None where not measured; a text says why there are none.
        title: What is compared.
        classes: Names of the classes.  None: their numbers.
    """
    c = max([len(values) for values in runs.values() if not isinstance(values, str)], default=1)
    table = np.full((len(runs), c), np.nan)
    for row, values in zip(table, runs.values(), strict=True):
        if not isinstance(values, str):
            row[: len(values)] = 100 * np.array(values, float)
    figure, axes = one_axes("Class", "", title, size=(PHONE, 2.1 + height(runs, _LETTERS)))
    numbers = [["" if np.isnan(value) else f"{value:.0f}" for value in row] for row in table]
    heat_map(figure, axes, table, "Recall (%)", numbers if c <= 10 else None, top=100.0, bar="bottom")
    for i, values in enumerate(runs.values()):
        if isinstance(values, str):
            axes.text((c - 1) / 2, i, values, ha="center", va="center", fontsize=9)
    class_ticks(axes.xaxis, c, classes)
    name_rows(axes, runs, _LETTERS)
    return figure


def drops(runs: Mapping[str, float | str], title: str) -> Figure:
    """Draw the max-recall-drop of several runs.

    Args:
        runs: Max-recall-drop of each run by its label, in [0, 1]; a text says why there is none.
        title: What is compared.
    """
    figure, axes = one_axes("Max-recall-drop (points)", "", title, size=(PHONE, 1.3 + height(runs, _LETTERS)))
    for i, value in enumerate(runs.values()):
        if isinstance(value, str):
            axes.text(1, i, value, va="center", fontsize=9)
        else:
            axes.barh(i, 100 * value, color=HONEST, height=0.7)
            axes.text(100 * value + 1, i, f"{100 * value:.1f}", va="center", fontsize=9)
    axes.set_xlim(0, 110)
    axes.set_xticks(range(0, 101, 20))
    axes.grid(visible=False, axis="y")
    name_rows(axes, runs, _LETTERS)
    return figure


def shares(runs: Mapping[str, tuple[float, float] | str], title: str) -> Figure:
    """Draw what share of the weight several runs' rules gave to honest and to Byzantine clients, mean over rounds.

    Args:
        runs: Share of the honest and of the Byzantine clients by the run's label, in [-1, 1]; a text says why there is
            none.
        title: What is compared.
    """
    figure, axes = one_axes(
        "Share of the weight (%), mean over rounds", "", title, size=(PHONE, 1.7 + height(runs, _LETTERS))
    )
    for i, weights in enumerate(runs.values()):
        if isinstance(weights, str):
            axes.text(1, i, weights, va="center", fontsize=9)
            continue
        honest, byzantine = 100 * weights[0], 100 * weights[1]
        axes.barh(i, honest, color=HONEST, height=0.7)
        axes.barh(i, byzantine, left=honest if honest * byzantine > 0 else 0, color=BYZANTINE, height=0.7)
        axes.text(101, i, f"{byzantine:.1f}", va="center", fontsize=9)
    handles = [mpl.patches.Patch(color=HONEST), mpl.patches.Patch(color=BYZANTINE)]
    figure.legend(handles, ["honest", "Byzantine (number)"], loc="outside lower center", ncols=2, frameon=False)
    lowest = -100 if any(not isinstance(weights, str) and min(weights) < 0 for weights in runs.values()) else 0
    axes.set_xlim(lowest, 100)
    axes.set_xticks(range(lowest, 101, 20))
    axes.grid(visible=False, axis="y")
    name_rows(axes, runs, _LETTERS)
    return figure
