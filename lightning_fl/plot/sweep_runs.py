"""The picture of a sweep: the metric over its parameters."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lightning_fl.plot._parts import MARKERS, PALETTE, PHONE, Row, legend_below, on_one_scale, one_axes, slant, wrapped
from lightning_fl.plot.groups import grouped
from lightning_fl.text import number


def sweep(
    rows: Sequence[Row], parameters: Sequence[str], metric: str, title: str, drawn: Mapping[str, str] | None = None
) -> list[Figure]:
    """Draw a sweep's metric against its parameters; a "seed" beside others counts as repetition.

    Two parameters with few values that are both numbers or both words make a heat map of means; one of numbers and one
    of words, a line or points for each word.  Otherwise each parameter has a picture, with lines through the means if
    it has few values.  Runs without a result are marked at the bottom, or grey in a heat map.

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
    figures = []
    for name in [name for name in names if name != hue]:
        figure, axes = one_axes(name, wrapped(label, 40), title, (PHONE, 4.2))
        scale = (drawn or {}).get(name)
        _sweep_panel(axes, rows, name, values[name], hue, values[hue] if hue else [None], metric, scale)
        legend_below(axes, hue)
        figures.append(figure)
    on_one_scale(figures)
    for figure in figures:
        low, high = figure.axes[0].get_ylim()
        figure.axes[0].set_yticks([y for y in figure.axes[0].get_yticks() if max(low, 0) <= y <= min(high, 100)])
    return figures


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
    wide = finite and 0 < min(places.values()) < max(places.values()) / 30
    axes.set_xscale(scale or ("log" if wide else "linear"))
    if listed:
        texts = [_text(value) for value in values]
        axes.set_xticks(list(places.values()), texts, **slant(texts, min(8, 40 // len(texts))))
        axes.minorticks_off()
    step = {"marker": "", "linestyle": "-"} if all(map(_is_number, values)) else {"marker": "_", "markersize": 18}
    lost: dict[Any, list[Row]] = {}
    for i, word in enumerate(hues):
        own = [row for row in rows if hue is None or row[hue] == word]
        style = {"color": PALETTE[i % len(PALETTE)], "linestyle": "", "markersize": 5}
        done = [(places[str(row[name])], 100 * row[metric]) for row in own if row[metric] is not None]
        named = {"marker": MARKERS[i], "label": None if word is None else _text(word)}
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


def _sweep_table(
    rows: Sequence[Row], names: Sequence[tuple[str, Sequence[Any]]], metric: str, label: str, title: str
) -> list[Figure]:
    (y, down), (x, across) = names
    down = down[::-1] if all(map(_is_number, down)) else down
    shown: dict[tuple[str, str, str], tuple[float | None, str]] = {}
    for (one, row_name), (other, column) in product(_texts(down), _texts(across)):
        own = [row for row in rows if row[y] == one and row[x] == other]
        done = [100 * row[metric] for row in own if row[metric] is not None]
        mean = float(np.mean(done)) if done else None
        star = "*" * (len(done) < len(own))
        shown[title, row_name, column] = mean, f"{mean:.1f}{star}" if done else own[0]["status"] if own else ""
    starred = "; *: of those with a result" if any(text.endswith("*") for _, text in shown.values()) else ""
    return grouped(shown, [text for _, text in _texts(across)], y, x, label + starred)


def _texts(values: Sequence[Any]) -> list[tuple[Any, str]]:
    """Pair values with texts that tell them apart."""
    short = [_text(value) for value in values]
    return list(zip(values, short if len(set(short)) == len(short) else map(str, values), strict=True))


def _ordered(values: Sequence[Any]) -> list[Any]:
    """List distinct values: numbers by size, words as they come."""
    distinct = list({str(value): value for value in values}.values())
    return sorted(distinct, key=float) if all(map(_is_number, distinct)) else distinct


def _is_number(value: Any) -> bool:
    """Tell whether a value, perhaps given as text, is a number; "inf" is one."""
    return not isinstance(value, bool) and (found := number(value)) is not None and not np.isnan(found)


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
