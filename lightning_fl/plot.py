"""Pictures of a run, drawn from its record."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

Row = dict[str, Any]

# Okabe and Ito's palette, told apart by the colour-blind too; honest clients blue, Byzantine ones vermilion.
HONEST, BYZANTINE = "#0072B2", "#D55E00"
_STYLES = ["-", "--", ":", "-."]


def recall_curves(rows: Sequence[Row], title: str) -> Figure:
    """Draw each class's recall and the accuracy over rounds.

    Args:
        rows: Rows of ``metrics.csv``; those without an evaluation are skipped.
        title: What the run is.
    """
    evaluated = [row for row in rows if row.get("accuracy") not in (None, "")]
    rounds = [int(row["round"]) for row in evaluated]
    classes = (
        sorted(int(name.split("/")[1]) for name in evaluated[0] if name.startswith("recall/")) if evaluated else []
    )
    figure, axes = _axes("Round", "Recall of each class (%)", title)
    colours = mpl.colormaps["viridis"](np.linspace(0, 0.92, max(len(classes), 1)))
    named = len(classes) <= 20
    for z in classes:
        values = [100 * float(row[f"recall/{z}"]) for row in evaluated]
        label = f"class {z}" if named else None
        axes.plot(rounds, values, color=colours[z], linestyle=_STYLES[z % 4], linewidth=1.4, label=label)
    accuracy = [100 * float(row["accuracy"]) for row in evaluated]
    axes.plot(rounds, accuracy, color="black", linewidth=2.4, label="accuracy")
    axes.set_ylim(-2, 102)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return figure


def trust_weights(rows: Sequence[Row], byzantine: Sequence[int], title: str) -> Figure:
    """Draw the weight that the rule gave to a client over rounds: median and range of honest and of Byzantine ones.

    Args:
        rows: Rows of ``weights.csv``: the round, then one weight a client; a client absent that round is skipped.
        byzantine: Numbers of the Byzantine clients.
        title: What the run is.
    """
    figure, axes = _axes("Round", "Weight of a client (%)", title)
    attackers = {str(client) for client in byzantine}
    names = dict.fromkeys(name for row in rows for name in row if name != "round")
    rounds = [int(row["round"]) for row in rows]
    table = np.array([[100 * float(_at(row, name)) for name in names] for row in rows]).reshape(len(rows), len(names))
    for label, colour, members in [
        ("honest", HONEST, [name not in attackers for name in names]),
        ("Byzantine", BYZANTINE, [name in attackers for name in names]),
    ]:
        if not (any(members) and rounds):
            continue
        present = ~np.isnan(table[:, members]).all(1)
        low, middle, high = np.nanpercentile(table[present][:, members], [5, 50, 95], axis=1)
        when = np.array(rounds)[present]
        axes.fill_between(when, low, high, color=colour, alpha=0.25, linewidth=0, label=f"{label}, 5 to 95 %")
        axes.plot(when, middle, color=colour, linewidth=1.8, label=f"{label}, median of {sum(members)}")
    axes.axhline(100 / max(len(names), 1), color="grey", linewidth=1, linestyle=":", label="equal shares")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return figure


def _at(row: Row, name: str) -> float:
    value = row.get(name)
    return float("nan") if value in (None, "") else float(value)


def _axes(x: str, y: str, title: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(8, 4.5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=x, ylabel=y, title=title)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes
