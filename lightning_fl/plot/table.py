"""Pictures of a table: against the paper, or over a parameter."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from lightning_fl.plot._parts import MARKERS, PALETTE, STYLES, one_axes


def against_paper(points: Sequence[tuple[str, float, float | None, Sequence[float]]], title: str) -> Figure:
    """Draw measured numbers against the paper's, equal ones on the diagonal.

    Args:
        points: Group, the paper's mean and deviation, and the measured numbers; bars are one deviation.
        title: What the table is.
    """
    figure, axes = one_axes("Paper", "Measured", title)
    figure.set_size_inches(8, 6)
    ends = [low for _, mean, _, values in points for low in (mean, *values)]
    axes.axline((min(ends), min(ends)), slope=1, color="grey", linewidth=1, linestyle=":", label="equal")
    for number, group in enumerate(dict.fromkeys(name for name, *_ in points)):
        own = [(mean, sd or 0.0, values) for name, mean, sd, values in points if name == group]
        axes.errorbar(
            [mean for mean, _, _ in own],
            [float(np.mean(values)) for _, _, values in own],
            xerr=[sd for _, sd, _ in own],
            yerr=[float(np.std(values, ddof=1)) if len(values) > 1 else 0.0 for _, _, values in own],
            fmt=MARKERS[number % len(MARKERS)],
            color=PALETTE[number % len(PALETTE)],
            markersize=5,
            elinewidth=0.8,
            alpha=0.8,
            label=group,
        )
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return figure


def over_parameter(
    lines: Mapping[str, Mapping[str, Sequence[float]]], ticks: Sequence[str], x: str, y: str, title: str
) -> Figure:
    """Draw lines over the values of a parameter, or markers over names, with bars of one deviation.

    Args:
        lines: Measured numbers of each line and tick; infinite ones are left out.
        ticks: What the lines go over, in order.
        x: What the ticks are; empty: names, so markers stand alone.
        y: What the numbers are.
        title: What the table is.
    """
    figure, axes = one_axes(x, y, title)
    for number, (name, line) in enumerate(lines.items()):
        finite = {tick: [value for value in line.get(tick, []) if np.isfinite(value)] for tick in ticks}
        places = [place for place, tick in enumerate(ticks) if finite[tick]]
        values = [finite[ticks[place]] for place in places]
        axes.errorbar(
            places,
            [float(np.mean(value)) for value in values],
            yerr=[float(np.std(value, ddof=1)) if len(value) > 1 else 0.0 for value in values],
            marker=MARKERS[number % len(MARKERS)],
            linestyle=STYLES[number // len(PALETTE) % len(STYLES)] if x else "",
            color=PALETTE[number % len(PALETTE)],
            markersize=5,
            linewidth=1.4,
            elinewidth=0.8,
            label=name,
        )
    axes.set_xticks(range(len(ticks)), ticks, **({} if x else {"rotation": 45, "ha": "right"}))
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return figure
