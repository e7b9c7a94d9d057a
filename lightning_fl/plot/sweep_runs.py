"""The picture of a sweep: the metric over its parameters."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lightning_fl.plot._parts import DPI, MARKERS, PALETTE, PHONE, Row, heat_map, one_axes, wrapped


def sweep(
    rows: Sequence[Row], parameters: Sequence[str], metric: str, title: str, drawn: Mapping[str, str] | None = None
) -> Figure:
    """Draw a sweep's metric against its parameters; a "seed" beside others counts as repetition.

    Two parameters with few values that are both numbers or both words make a heat map of means; one of numbers and one
    of words, a line or points for each word.  Otherwise each parameter has a panel, with lines through the means if it
    has few values.  Runs without a result are marked at the bottom, or grey in a heat map.

    Args:
        rows: One for each run: the value of each parameter, the metric (a share, None without a result), "status".
        parameters: What was swept.
        metric: "accuracy", "validation_accuracy" or "mrd".
        title: What the sweep is.
        drawn: The axis, "linear" or "log", of each parameter that is drawn from a distribution.
    """
    names = [name for name in parameters if name != "seed"] or ["seed"]
    rows = [{"seed": 0} | row for row in rows]
    values = {name: _ordered([row[name] for row in rows]) for name in names}
    words = [name for name in names if not all(map(_is_number, values[name]))]
    label = {
        "accuracy": "Accuracy (%)",
        "validation_accuracy": "Accuracy on validation samples (%)",
        "mrd": "Max-recall-drop (%)",
    }[metric]
    if len(names) == 2 and len(words) != 1 and max(map(len, values.values())) <= 20 and not drawn:
        return _sweep_table(rows, sorted(values.items(), key=lambda item: -len(item[1])), metric, label, title)
    hue = words[0] if len(names) == 2 and len(words) == 1 and len(values[words[0]]) <= len(MARKERS) else None
    panels = [name for name in names if name != hue]
    columns = 2 if len(panels) == 4 else min(len(panels), 3)
    depth = -(-len(panels) // columns)
    figure = Figure(
        figsize=(PHONE if columns == 1 else 4 * columns, max(4.5, 3.5 * depth)), dpi=DPI, layout="constrained"
    )
    figure.suptitle(wrapped(title, 80))
    grid = figure.subplots(depth, columns, squeeze=False, sharey=True).flat
    for name, axes in zip(panels, grid, strict=False):
        axes.set(xlabel=name, ylabel=label if axes.get_subplotspec().is_first_col() else "")
        scale = (drawn or {}).get(name)
        _sweep_panel(axes, rows, name, values[name], hue, values[hue] if hue else [None], metric, scale)
    for axes in list(figure.axes)[len(panels) :]:
        axes.remove()
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if labels:
        figure.legend(handles, labels, title=hue, loc="outside lower center", ncols=2, frameon=False)
    return figure


_LOST = {"diverged": "x", "failed": "1"}  # markers of runs without a result
_OTHER = "v"  # that of others, such as unfinished ones


def _sweep_panel(
    axes: Any,
    rows: Sequence[Row],
    name: str,
    values: Sequence[Any],
    hue: str | None,
    hues: Sequence[Any],
    metric: str,
    scale: str | None,
) -> None:
    listed = scale is None and len(values) <= 12
    finite = all(_is_number(value) and np.isfinite(float(value)) for value in values)
    places = {str(value): float(value) if finite else i for i, value in enumerate(values)}
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if scale is not None:
        axes.set_xscale(scale)
    elif finite and 0 < min(places.values()) < max(places.values()) / 30:
        axes.set_xscale("log")
    if listed:
        long = max(len(_text(value)) for value in values) > 8
        turn = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if long else {}
        axes.set_xticks(list(places.values()), map(_text, values), **turn)
        axes.minorticks_off()
    step = {"marker": "", "linestyle": "-"} if all(map(_is_number, values)) else {"marker": "_", "markersize": 18}
    lost: dict[Any, list[Row]] = {}
    for number, word in enumerate(hues):
        own = [row for row in rows if hue is None or row[hue] == word]
        style = {"color": PALETTE[number % len(PALETTE)], "linestyle": "", "markersize": 5}
        done = [(places[str(row[name])], 100 * row[metric]) for row in own if row[metric] is not None]
        named = {"marker": MARKERS[number], "label": None if word is None else _text(word)}
        axes.plot([x for x, _ in done], [y for _, y in done], **style | named, alpha=0.75)
        if listed:
            at = {x: [y for place, y in done if place == x] for x in sorted(places.values())}
            means = [np.mean(found) if found else np.nan for found in at.values()]  # no line through a gap
            axes.plot(list(at), means, **style | step)
        if any(row[metric] is None for row in own):
            lost[style["color"]] = [row for row in own if row[metric] is None]
    found = [100 * row[metric] for row in rows if row[metric] is not None] or [0.0]
    for depth, (colour, own) in enumerate(lost.items(), start=2):
        for row in own:
            foot = min(found) - 0.05 * depth * max(max(found) - min(found), 1.0)
            axes.plot(places[str(row[name])], foot, color=colour, marker=_LOST.get(row["status"], _OTHER), markersize=7)
    for status in dict.fromkeys(row["status"] for own in lost.values() for row in own):
        label = f"no {metric}" if status in ("completed", "stopped early") else status
        axes.plot([], [], color="black", linestyle="", marker=_LOST.get(status, _OTHER), label=label)
    axes.margins(x=0.05 if finite else 0.12)
    low, high = axes.get_ylim()
    axes.set_yticks([tick for tick in axes.get_yticks() if max(low, 0) <= tick <= min(high, 100)])


def _sweep_table(
    rows: Sequence[Row], names: Sequence[tuple[str, Sequence[Any]]], metric: str, label: str, title: str
) -> Figure:
    (y, down), (x, across) = names
    down = down[::-1] if all(map(_is_number, down)) else down
    figure, axes = one_axes(x, y, title, size=(2.5 + 0.5 * max(len(across), 4), 2 + 0.34 * max(len(down), 6)))
    means, texts = np.full((len(down), len(across)), np.nan), np.full((len(down), len(across)), "", dtype=object)
    for i, j in np.ndindex(means.shape):
        own = [row for row in rows if row[y] == down[i] and row[x] == across[j]]
        done = [100 * row[metric] for row in own if row[metric] is not None]
        if done:
            means[i, j] = np.mean(done)
            texts[i, j] = f"{means[i, j]:.1f}" + ("*" if len(done) < len(own) else "")
        elif own:
            axes.text(j, i, own[0]["status"], ha="center", va="center", fontsize=7, color="black")
    starred = "; *: of those with a result" if any("*" in text for text in texts.flat) else ""
    heat_map(figure, axes, means, label + starred, texts.tolist())
    turn = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if max(map(len, map(_text, across))) > 8 else {}
    axes.set_xticks(range(len(across)), map(_text, across), **turn)
    axes.set_yticks(range(len(down)), map(_text, down))
    return figure


def _ordered(values: Sequence[Any]) -> list[Any]:
    """List distinct values: numbers by size, words as they come."""
    distinct = list({str(value): value for value in values}.values())
    return sorted(distinct, key=float) if all(map(_is_number, distinct)) else distinct


def _is_number(value: Any) -> bool:
    """Tell whether a value, perhaps given as text, is a number; "inf" is one."""
    if isinstance(value, bool):
        return False
    try:
        return not np.isnan(float(value))
    except (TypeError, ValueError):
        return False


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
