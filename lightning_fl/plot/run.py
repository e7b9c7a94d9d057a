"""Pictures of one run: recall, trust, confusion."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lightning_fl.plot._parts import (
    BYZANTINE,
    HONEST,
    MARKERS,
    PHONE,
    STYLES,
    Row,
    class_ticks,
    heat_map,
    legend_below,
    number_at,
    one_axes,
    round_marker,
)
from lightning_fl.text import class_name

# Of ten classes; black is the accuracy's, vermilion the attack's.
_COLOURS = [HONEST, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A4A1D", "#777777", "#6A3D9A", "#A3A500", "#00324D"]
_SIZE = (PHONE, 3.8)


def recall_curves(rows: Sequence[Row], title: str, classes: Sequence[str] | None = None) -> Figure:
    """Draw each class's recall and the accuracy over rounds; with more than 20 classes, the spread of their recalls.

    What the attack measured of its own success, such as ``attack/success_rate``, is drawn beside them.

    Args:
        rows: Rows of ``metrics.csv``; those without an evaluation are skipped.
        title: What the run is.
        classes: Names of the classes.  None: their numbers.
    """
    evaluated = [row for row in rows if row.get("accuracy") not in (None, "")]
    rounds = [int(row["round"]) for row in evaluated]
    names = [name for name in evaluated[0] if name.startswith("recall/")] if evaluated else []
    names.sort(key=lambda name: int(name.split("/")[1]))
    table = 100 * np.array([[float(row[name]) for name in names] for row in evaluated])
    figure, axes = one_axes("Round", "Recall of each class (%)", title, _SIZE)
    marker = round_marker(rounds)
    if len(names) > 20:
        low, quarter, middle, most, high = np.percentile(table, [0, 25, 50, 75, 100], axis=1)
        axes.fill_between(rounds, low, high, color=HONEST, alpha=0.15, linewidth=0, label=f"all {len(names)} classes")
        axes.fill_between(rounds, quarter, most, color=HONEST, alpha=0.3, linewidth=0, label="the middle half of them")
        axes.plot(rounds, low, ":", color=HONEST, linewidth=1.4, label="lowest recall", marker=marker)
        axes.plot(rounds, middle, color=HONEST, linewidth=1.4, label="median", marker=marker)
    else:
        for i, name in enumerate(names):
            z = int(name.split("/")[1])
            style: dict[str, Any] = {"color": _COLOURS[z % len(_COLOURS)], "linestyle": STYLES[z % len(STYLES)]}
            every = max(len(rounds) // 10, 1)  # about ten markers per line, at different rounds for each
            style |= {"marker": MARKERS[z % len(MARKERS)], "markersize": 5, "markevery": (z % every, every)}
            axes.plot(rounds, table[:, i], linewidth=1.4, label=class_name(z, classes), **style)
    accuracy = [100 * float(row["accuracy"]) for row in evaluated]
    axes.plot(rounds, accuracy, color="black", linewidth=2.4, label="accuracy", marker=marker)
    attack = sorted({name for row in evaluated for name in row if name.startswith("attack/")})
    for dashes, name in zip(["--", ":", "-."] * len(attack), attack, strict=False):
        values = [100 * number_at(row, name) for row in evaluated]
        label = name.replace("/", " ").replace("_", " ")
        axes.plot(rounds, values, dashes, color=BYZANTINE, linewidth=2.4, label=label, marker=marker)
    axes.set_ylim(-2, 102)
    if len(names) > 20 or not rounds:
        legend_below(axes)
    else:
        axes.margins(x=0.01)
        _name_ends(axes)
    return figure


def _name_ends(axes: Any) -> None:
    """Name each line beside its last point, in its colour and with its marker; names do not overlap."""
    lines = axes.get_lines()
    ends = [[y for y in line.get_ydata() if np.isfinite(y)][-1:] or [0.0] for line in lines]
    order = sorted(range(len(lines)), key=lambda i: ends[i][0])
    low, high = axes.get_ylim()
    gap = min(5.2, (high - low) / max(len(lines) - 1, 1))
    places = [ends[i][0] for i in order]
    for i in range(1, len(places)):  # push up a name that is too near to the one below ...
        places[i] = max(places[i], places[i - 1] + gap)
    for i in reversed(range(len(places))):  # ... and down again one that is beyond the top
        places[i] = min(places[i], high - (len(places) - 1 - i) * gap)
    beside = axes.get_yaxis_transform()
    for place, i in zip(places, order, strict=True):
        line, outside = lines[i], {"transform": beside, "clip_on": False}
        look = {"color": line.get_color(), "linestyle": line.get_linestyle(), "linewidth": line.get_linewidth()}
        axes.plot([1.0, 1.03], [ends[i][0], place], color="grey", linewidth=0.5, **outside, label="_to name")
        mark = {"marker": line.get_marker(), "markersize": 5, "markevery": [1]}
        axes.plot([1.03, 1.055, 1.08], [place] * 3, **look, **mark, **outside, label="_name")
        weight = "bold" if line.get_linewidth() > 2 else "normal"
        axes.text(1.095, place, line.get_label(), va="center", fontsize=9, fontweight=weight, transform=beside)


def recall_drops(
    recall: Sequence[float | None],
    reference: Sequence[float | None],
    title: str,
    classes: Sequence[str] | None = None,
) -> Figure:
    """Draw how much recall each class lost against plain averaging without attack; the largest loss stands out.

    Args:
        recall: Recall of each class, in [0, 1]; None where it was not measured.
        reference: That of the reference.
        title: What the run is.
        classes: Names of the classes.  None: their numbers.
    """
    figure, axes = one_axes("Class", "Recall lost (points)", title, _SIZE)
    drops = 100 * (np.array(reference, float) - np.array(recall, float))
    worst = int(np.nan_to_num(drops, nan=-np.inf).argmax())
    others = [z for z in range(len(drops)) if z != worst and not np.isnan(drops[z])]
    label = f"largest: {max(drops[worst], 0):.1f}, {class_name(worst, classes)}"
    axes.bar([worst], drops[[worst]], color=BYZANTINE, label=label)
    axes.bar(others, drops[others], color=HONEST, label="other classes" if others else None)
    axes.axhline(0, color="black", linewidth=0.8)
    class_ticks(axes.xaxis, len(drops), classes)
    legend_below(axes)
    return figure


def confusion(counts: Sequence[Sequence[int]], title: str, classes: Sequence[str] | None = None) -> Figure:
    """Draw the confusion matrix: which share of a class's test samples is taken for which class.

    Args:
        counts: Test samples by true class (rows) and predicted class.
        title: What the run is.
        classes: Names of the classes.  None: their numbers.
    """
    table = np.asarray(counts, dtype=float)
    sums = table.sum(1, keepdims=True)
    shares = np.divide(100 * table, sums, out=np.full_like(table, np.nan), where=sums > 0)
    figure, axes = one_axes("Predicted class", "True class", title, (PHONE, 4.4))
    numbers = [["" if not value > 0.5 else f"{value:.0f}" for value in row] for row in shares]
    label = "Share of the true class (%)" + ("; grey: no test sample" if np.isnan(shares).any() else "")
    few = len(table) <= 20
    heat_map(figure, axes, shares, label, numbers if few else None, top=100.0 if few else None)
    class_ticks(axes.xaxis, len(table), classes)
    class_ticks(axes.yaxis, len(table), classes)
    return figure


def trust_weights(rows: Sequence[Row], byzantine: Sequence[int], title: str) -> Figure:
    """Draw the weight that the rule gave to a client over rounds: median and range of honest and of Byzantine ones.

    Args:
        rows: Rows of ``weights.csv``: the round, then one weight per client; a client absent that round is skipped.
        byzantine: Numbers of the Byzantine clients.
        title: What the run is.
    """
    figure, axes = one_axes("Round", "Weight of a client (%)", title, _SIZE)
    attackers = {str(client) for client in byzantine}
    names = dict.fromkeys(name for row in rows for name in row if name != "round")
    rounds = [int(row["round"]) for row in rows]
    table = np.array([[100 * number_at(row, name) for name in names] for row in rows]).reshape(len(rows), len(names))
    for label, colour, members in [
        ("honest", HONEST, [name not in attackers for name in names]),
        ("Byzantine", BYZANTINE, [name in attackers for name in names]),
    ]:
        if not (any(members) and rounds):
            continue
        seen = ~np.isnan(table[:, members]).all(1)
        low, middle, high = np.nanpercentile(table[seen][:, members], [0, 50, 100], axis=1)
        when = np.array(rounds)[seen]
        band = f"{label}, least to most" if (high - low).max() > 1e-6 else None
        axes.fill_between(when, low, high, color=colour, alpha=0.25, linewidth=0, label=band)
        style = "-" if label == "honest" else "--"  # both show where they coincide
        axes.plot(when, middle, style, color=colour, linewidth=1.8, label=f"{label}, median of {sum(members)}")
    present = (~np.isnan(table)).sum(1).max(initial=1)
    axes.axhline(100 / present, color="grey", linewidth=1, linestyle=":", label="equal shares")
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0), high + 0.05 * (high - min(low, 0)))  # a constant line would lie on the edge
    legend_below(axes)
    return figure


def kappas(rows: Sequence[Row], bound: float | None, title: str) -> Figure:
    """Draw the measured kappa over rounds beside what theory promises.

    Args:
        rows: Rows of ``metrics.csv``.
        bound: Theory's bound.  None: there is none.
        title: What the run is.
    """
    figure, axes = one_axes("Round", "Kappa (0 at the foot)", title, _SIZE)
    rounds = [int(row["round"]) for row in rows if row.get("robustness/kappa") not in (None, "")]
    values = np.array([float(row["robustness/kappa"]) for row in rows if row.get("robustness/kappa") not in (None, "")])
    shown = values[np.isfinite(values) & (values > 0)].tolist() + ([bound] if bound and np.isfinite(bound) else [])
    low, high = min(shown, default=0.1), max(shown, default=1.0)
    axes.set_yscale("log")
    foot, top = 10 ** np.floor(np.log10(low) - 0.3), 10 ** np.ceil(np.log10(high) + 0.1)
    axes.set_ylim(foot, top)
    drawn = np.clip(values, foot, top)
    label = f"measured, mean {values[np.isfinite(values)].mean():.3g}" if np.isfinite(values).any() else "measured"
    axes.plot(rounds, drawn, color=HONEST, linewidth=1.8, marker=round_marker(rounds), label=label, clip_on=False)
    infinite = [number for number, value in zip(rounds, values, strict=True) if not np.isfinite(value)]
    if infinite:
        style = {"color": BYZANTINE, "marker": "^", "linestyle": "", "clip_on": False}
        axes.plot(infinite, [top] * len(infinite), **style, label="infinite")
    if bound is not None:
        style = {"color": "black", "linewidth": 1.4, "linestyle": "--"}
        axes.axhline(max(bound, foot), **style, label=f"theory's bound, {bound:.3g}")
    legend_below(axes, None if bound is not None else "no bound is known or holds")
    return figure


def detections(rows: Sequence[Row], title: str) -> Figure:
    """Draw how well the rule told over rounds who lies: the area under the curve, true and false alarms.

    Args:
        rows: Rows of ``metrics.csv``.
        title: What the run is.
    """
    figure, axes = one_axes("Round", "Detection (%)", title, _SIZE)
    for name, label, colour, style in [
        ("auc", "area under the curve", "black", "-"),
        ("true_alarms", "Byzantine clients accused", BYZANTINE, "--"),
        ("false_alarms", "honest clients accused", HONEST, "-."),
    ]:
        points = [
            (int(row["round"]), 100 * float(row[f"detection/{name}"])) for row in rows if f"detection/{name}" in row
        ]
        if points:
            rounds, values = zip(*points, strict=True)
            axes.plot(rounds, values, style, color=colour, marker=round_marker(rounds), label=label)
    axes.axhline(50, color="grey", linewidth=1, linestyle=":", label="a guess's area")
    axes.set_ylim(-2, 102)
    legend_below(axes)
    return figure
