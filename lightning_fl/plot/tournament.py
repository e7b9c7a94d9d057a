"""Pictures of a tournament: accuracies by rule and attack, and the worst case over label skew."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from lightning_fl.plot._parts import MARKERS, PALETTE, STYLES, heat_map, legend_beside, name_rows, one_axes


def outcomes(table: Mapping[str, Mapping[str, float | None]], attacks: Sequence[str], title: str) -> Figure:
    """Draw accuracies as a heat map with their numbers, so that it reads in black and white.

    Args:
        table: By rule, in the order of the rows, and attack the accuracy in percent; None: not measured.
        attacks: The columns.
        title: What it is.
    """
    size = 3.6 + 0.42 * len(attacks), 2.4 + 0.24 * len(table)
    figure, axes = one_axes("", "", title, size)
    values = np.array([[_number(row.get(attack)) for attack in attacks] for row in table.values()])
    numbers = [["" if np.isnan(value) else f"{value:.0f}" for value in row] for row in values]
    heat_map(figure, axes, values, "Accuracy (%)", numbers, top=100.0)
    axes.set_xticks(range(len(attacks)), attacks, rotation=60, ha="right", rotation_mode="anchor")
    name_rows(axes, list(table))
    axes.tick_params(axis="y", labelsize=8)
    return figure


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def worst_over_skew(
    lines: Mapping[str, Mapping[str, tuple[float, float, float]]], skews: Sequence[str], title: str
) -> Figure:
    """Draw the accuracy under the worst attack over degrees of label skew, with intervals.

    Args:
        lines: By rule and skew mean, low and high, in percent.
        skews: The places on the x axis, from no skew to the most.
        title: What it is.
    """
    figure, axes = one_axes("Label skew", "Accuracy under the worst attack (%)", title, (9.0, 5.0))
    axes.set_xticks(range(len(skews)), skews)
    axes.set_ylim(-2, 102)
    for i, (rule, points) in enumerate(lines.items()):
        there = [k for k, skew in enumerate(skews) if skew in points]
        means, lows, highs = np.array([points[skews[k]] for k in there]).reshape(-1, 3).T
        shift = 0.012 * (i - (len(lines) - 1) / 2)  # intervals side by side
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
    legend_beside(axes)
    return figure
