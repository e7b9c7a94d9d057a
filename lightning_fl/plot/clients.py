"""Pictures of clients: what each one holds, when the rule trusted it, and what it believed of its labels."""

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lightning_fl.plot._parts import (
    BYZANTINE,
    DPI,
    MAP,
    PHONE,
    Row,
    class_ticks,
    heat_map,
    number_at,
    one_axes,
    stretches,
    wrapped,
)
from lightning_fl.text import class_name


def partition(
    counts: Sequence[Sequence[int]], byzantine: Collection[int], title: str, classes: Sequence[str] | None = None
) -> Figure:
    """Draw how many samples of each class each client holds.

    Args:
        counts: Samples by client (rows) and class.
        byzantine: Numbers of the Byzantine clients; those beyond the rows hold no data.
        title: What the federation is.
        classes: Names of the classes.  None: their numbers.
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
    class_ticks(axes.yaxis, c, classes)
    if byzantine:
        figure.legend(loc="outside lower right", frameon=False)
    return figure


_MOST_ROUNDS = 600  # columns of a heat map; more rounds are averaged


def client_weights(
    weights: Sequence[Row],
    clients: Sequence[Row],
    byzantine: Collection[int],
    title: str,
    classes: Sequence[str] | None = None,
) -> Figure:
    """Draw each client's weight over rounds: honest ones sorted by their largest class, Byzantine ones apart.

    Args:
        weights: Rows of ``weights.csv``; a client absent in a round lacks the key.
        clients: Rows of ``clients.csv``; without them clients are sorted by number.
        byzantine: Numbers of the Byzantine clients.
        title: What the run is.
        classes: Names of the classes.  None: their numbers.
    """
    names = sorted({int(name) for row in weights for name in row if name != "round"})
    order, groups = _by_main_class(names, clients, byzantine, classes)
    rounds = [int(row["round"]) for row in weights] or [1]
    table = np.full((len(order), rounds[-1] - rounds[0] + 1), np.nan)  # rounds without weights have a column, too
    for row in weights:
        table[:, int(row["round"]) - rounds[0]] = [100 * number_at(row, str(client)) for client in order]
    step = -(-table.shape[1] // _MOST_ROUNDS)
    figure, axes = one_axes("Round", "", title, size=(PHONE, 2.5 + 0.03 * min(max(len(order), 40), 150)))
    shown = _averaged(table, step)
    extent = (rounds[0] - 0.5, rounds[0] - 0.5 + step * shown.shape[1], len(order) - 0.5, -0.5)
    low, high, most = np.percentile(shown.compressed(), [0, 99.5, 100]) if shown.count() else (0.0, 1.0, 1.0)
    scale = {"vmin": min(low, 0.0), "vmax": high if high > 0 else max(most, 1e-9), "cmap": MAP}
    image = axes.imshow(shown, extent=extent, aspect="auto", interpolation="nearest", **scale)
    absent = "\nlight grey: absent" if np.isnan(table).any() else ""
    figure.colorbar(image, ax=axes, label=f"Weight of a client (%){absent}", extend="max")
    axes.set_xlim(rounds[0] - 0.5, rounds[-1] + 0.5)
    axes.grid(visible=False)
    _name_groups(axes, groups)
    return figure


def label_distributions(clients: Sequence[Row], title: str, classes: Sequence[str] | None = None) -> Figure:
    """Draw the share of each class that clients hold beside what the rule estimated last.

    Args:
        clients: Rows of ``clients.csv``.
        title: What the run is.
        classes: Names of the classes.  None: their numbers.
    """
    by_number = {int(row["client"]): row for row in clients}
    byzantine = [client for client, row in by_number.items() if row["byzantine"]]
    order, groups = _by_main_class(list(by_number), clients, byzantine, classes)
    c = sum(name.startswith("estimate/") for name in max(clients, key=len))
    held, estimated = (
        np.array([[number_at(by_number[client], f"{what}/{z}") for z in range(c)] for client in order])
        for what in ("samples", "estimate")
    )
    with np.errstate(invalid="ignore"):
        held = 100 * held / held.sum(1, keepdims=True)
    figure = Figure(figsize=(PHONE, 2.5 + 0.03 * min(max(len(order), 40), 150)), dpi=DPI, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, table, name in [(left, held, "Held"), (right, 100 * estimated, "Estimated last")]:
        image = axes.imshow(
            np.ma.masked_invalid(table), cmap=MAP, vmin=0, vmax=100, aspect="auto", interpolation="nearest"
        )
        axes.set(title=name, xlabel="Class")
        class_ticks(axes.xaxis, c, classes)
    _name_groups(left, groups)
    _name_groups(right, groups)
    unknown = "\nlight grey: unknown" if np.isnan(held).any() or np.isnan(estimated).any() else ""
    label = f"Share of the client's samples (%){unknown}"
    figure.colorbar(image, ax=[left, right], label=label, extend="both")
    figure.suptitle(wrapped(title, 34))
    return figure


def _by_main_class(
    names: Sequence[int], clients: Sequence[Row], byzantine: Collection[int], classes: Sequence[str] | None
) -> tuple[list[int], list[tuple[str, int]]]:
    """Order the clients and name their groups, with the number of clients in each."""
    main: dict[int, int] = {}
    for row in clients:
        counts = {int(name.split("/")[1]): value for name, value in row.items() if name.startswith("samples/")}
        if counts:
            main[int(row["client"])] = max(counts, key=lambda z: (counts[z], -z))
    honest = sorted((client for client in names if client not in byzantine), key=lambda i: (main.get(i, -1), i))
    attackers = sorted(client for client in names if client in byzantine)
    labels = [class_name(main[client], classes) if client in main else "honest" for client in honest]
    labels += ["Byzantine"] * len(attackers)
    return [*honest, *attackers], [(label, labels.count(label)) for label in dict.fromkeys(labels)]


def _averaged(table: Any, step: int) -> Any:
    """Average every ``step`` columns into one; NaNs do not count."""
    wide = np.pad(table, ((0, 0), (0, -table.shape[1] % step)), constant_values=np.nan)
    return np.ma.masked_invalid(wide.reshape(len(table), -1, step)).mean(2)


def _name_groups(axes: Any, groups: Sequence[tuple[str, int]]) -> None:
    """Name groups of rows in their middle, with lines between them; the Byzantine group in its colour."""
    ends = np.cumsum([0, *(number for _, number in groups)])
    middles, last = [], -ends[-1]
    for (label, _), (start, end) in zip(groups, pairwise(ends), strict=True):
        middle = (start + end - 1) / 2
        if middle - last > 0.03 * ends[-1] or label == "Byzantine":  # else the names would overlap
            middles.append((middle, label))
            last = middle
    axes.set_yticks([middle for middle, _ in middles], [label for _, label in middles])
    axes.tick_params(axis="y", length=0)
    for (label, _), end in zip(groups[1:], ends[1:-1], strict=True):
        byzantine = label == "Byzantine"
        axes.axhline(end - 0.5, color=BYZANTINE if byzantine else "white", linewidth=2.5 if byzantine else 0.6)
    for tick in axes.get_yticklabels():
        if tick.get_text() == "Byzantine":
            tick.set(color=BYZANTINE, fontweight="bold")
