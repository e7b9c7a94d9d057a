"""Pictures of a tournament: accuracies by rule and attack, and the worst case over label skew."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from lightning_fl.plot._parts import (
    MARKERS,
    PALETTE,
    PHONE,
    STYLES,
    heat_map,
    legend_below,
    name_rows,
    one_axes,
    wrapped,
)

_FAR = 10  # points between seeds, from which a mean alone misleads


def outcomes(
    table: Mapping[str, Mapping[str, Sequence[float]]], attacks: Sequence[str], apart: Sequence[str], title: str
) -> Figure:
    """Draw mean accuracies as a heat map with their numbers, so that it reads in black and white.

    Args:
        table: Accuracies over seeds in percent, by rule, in the order of the rows, and column; none: not measured.
        attacks: The columns.
        apart: Further columns, set apart.
        title: What it is.
    """
    columns = [*attacks, *apart]
    size = 3.6 + 0.42 * len(columns), 2.4 + 0.24 * len(table)
    figure, axes = one_axes("", "", title, size)
    cells = [[row.get(column, ()) for column in columns] for row in table.values()]
    values = np.array([[np.mean(cell) if cell else np.nan for cell in row] for row in cells])
    numbers = [[f"{np.mean(cell):.0f}{_mark(cell)}" if cell else "" for cell in row] for row in cells]
    heat_map(figure, axes, values, "Accuracy (%)", numbers, top=100.0)
    axes.axvline(len(attacks) - 0.5, color="white", linewidth=8)
    axes.set_xticks(range(len(columns)), columns, rotation=60, ha="right", rotation_mode="anchor")
    if any("*" in number for row in numbers for number in row):
        axes.set_xlabel(f"* seeds differ by more than {_FAR} points")
    name_rows(axes, list(table))
    return figure


def _mark(values: Sequence[float]) -> str:
    return "*" if max(values) - min(values) > _FAR else ""


def worst_over_skew(
    lines: Mapping[str, Mapping[str, tuple[float, float, float]]], skews: Sequence[str], title: str
) -> Figure:
    """Draw the accuracy under the worst attack over degrees of label skew, with intervals.

    Args:
        lines: Mean, low and high in percent, by rule and skew.
        skews: The places on the x axis, from no skew to the most.
        title: What it is.
    """
    figure, axes = one_axes("Label skew", "Accuracy under the worst attack (%)", title, (PHONE, 4.2 + 0.2 * len(lines)))
    axes.set_xticks(range(len(skews)), skews)
    lowest = min(low for points in lines.values() for _, low, _ in points.values())
    axes.set_ylim(max(lowest - 5, -2), 102)
    apart = 0.05 if any(low < high for points in lines.values() for _, low, high in points.values()) else 0.0
    for i, (rule, points) in enumerate(lines.items()):
        there = [k for k, skew in enumerate(skews) if skew in points]
        means, lows, highs = np.array([points[skews[k]] for k in there]).reshape(-1, 3).T
        shift = apart * (i - (len(lines) - 1) / 2)  # intervals side by side
        axes.errorbar(
            np.array(there) + shift,
            means,
            yerr=[np.maximum(means - lows, 0), np.maximum(highs - means, 0)],
            label=rule,
            color=PALETTE[i % len(PALETTE)],
            linestyle=STYLES[i % len(STYLES)],
            marker=MARKERS[i % len(MARKERS)],
            capsize=2,
            linewidth=1.6,
        )
    legend_below(axes)
    return figure


def over_told(
    panels: Mapping[str, Mapping[str, Mapping[float, float]]], bound: Mapping[float, float], title: str
) -> list[Figure]:
    """Draw what rules lose by a wrong f, and their measured kappa beside theory's least.

    Args:
        panels: Values by what is measured, rule and multiple of the true number that the rule was told; the last is
            kappa.
        bound: Theory's least kappa by multiple.
        title: What it is.
    """
    figures: list[Figure] = []
    for what, lines in panels.items():
        x = "f told, as a multiple of the true number"
        figure, axes = one_axes(wrapped(x, 36), wrapped(what, 40), title, (PHONE, 4.2 + 0.2 * len(lines)))
        axes.set_xscale("linear")  # ticks at fractions, too
        for i, (rule, points) in enumerate(lines.items()):
            style = {"color": PALETTE[i % len(PALETTE)], "linestyle": STYLES[i % len(STYLES)]}
            axes.plot(list(points), list(points.values()), label=rule, marker=MARKERS[i % len(MARKERS)], **style)
        if len(figures) + 1 == len(panels):
            style = {"color": "black", "label": "theory's least kappa"}
            axes.plot(list(bound), list(bound.values()), linewidth=3, alpha=0.5, **style)
            axes.set_yscale("log")
        legend_below(axes)
        figures.append(figure)
    return figures
