"""The picture of a partition: which client holds what."""

from collections.abc import Collection, Sequence

import numpy as np
from matplotlib.figure import Figure

from lightning_fl.plot._parts import BYZANTINE, class_ticks, heat_map, one_axes, stretches


def partition(counts: Sequence[Sequence[int]], byzantine: Collection[int], title: str) -> Figure:
    """Draw how many samples of each class each client holds.

    Args:
        counts: Samples by client (rows) and class.
        byzantine: Numbers of the Byzantine clients; those beyond the rows hold no data.
        title: What the federation is.
    """
    held = np.asarray(counts, dtype=float)
    n, c = max([len(held), *(client + 1 for client in byzantine)]), held.shape[1]
    table = np.full((c, n), np.nan)
    table[:, : len(held)] = np.where(held > 0, held, np.nan).T
    figure, axes = one_axes("Client", "Class", title, size=(9.0, 3 + min(c, 40) / 10))
    heat_map(figure, axes, table, "Samples (light grey: none)", power=0.5)  # a few clients may hold most
    for first, last in stretches(byzantine):
        label = "Byzantine" if first == min(byzantine) else None
        style = {"facecolor": "none", "edgecolor": BYZANTINE, "hatch": "//"}
        axes.axvspan(first - 0.5, last + 0.5, **style, label=label)
    class_ticks(axes.yaxis, c)
    if byzantine:
        figure.legend(loc="outside lower right", frameon=False)
    return figure
