"""What the pictures share: colours, axes, legends, heat maps."""

import glob
import textwrap
from base64 import b64encode
from collections.abc import Collection, Iterator, Sequence
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from lightning_fl import files
from lightning_fl.text import class_name

Row = dict[str, Any]
T = TypeVar("T")

# Okabe and Ito's palette, which the colour-blind can tell apart, too; honest clients blue, Byzantine ones vermilion.
HONEST, BYZANTINE = "#0072B2", "#D55E00"
PALETTE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
STYLES = ["-", "--", ":", "-."]
MAP = mpl.colormaps["cividis"].with_extremes(bad="#dddddd")
MARKERS = "os^Dv<>PX*"
PHONE = 4.5  # inches: so wide, a picture's letters are 11 pixels high on a screen of 390 pixels
DPI = 150
LEGIBLE = 11 / (10 * DPI / 72)  # of a picture's pixels, those of the screen that show its letters of 10 points


def save(figure: Figure, target: Path | BytesIO) -> None:
    """Write a picture; without TeX, even if matplotlibrc asks for it, as labels such as trimmed_mean are not TeX.

    Raises:
        DataError: If the file cannot be written; the message names it, which the disk's own error need not.
    """
    if mpl.rcParams["text.usetex"]:
        for text in figure.findobj(Text):
            text.set_usetex(False)
    drawn, kind = (BytesIO(), target.suffix[1:]) if isinstance(target, Path) else (target, "png")
    with mpl.rc_context({"text.usetex": False}):  # of ticks, which are made while drawing
        figure.savefig(drawn, format=kind)
    if isinstance(target, Path):
        files.write(target, drawn.getbuffer())


class Pictures(dict[str, Figure]):
    """Figures by name; a notebook shows them all."""

    def _repr_html_(self) -> str:
        shown = []
        for name, figure in self.items():
            png = BytesIO()
            save(figure, png)
            code = b64encode(png.getvalue()).decode()
            shown.append(f'<img alt="{escape(name)}" style="max-width: 100%" src="data:image/png;base64,{code}">')
        return "\n".join(shown)


def named(stem: str, figures: Sequence[Figure]) -> dict[str, Figure]:
    """Name pictures that belong together: by the stem, or if they are several stem_panel_1, stem_panel_2, ..."""
    return {stem if len(figures) == 1 else f"{stem}_panel_{i}": figure for i, figure in enumerate(figures, 1)}


def publish(figures: Sequence[Figure], folder: Path, stem: str) -> list[Path]:
    """Write pictures that belong together as PNG, for screens, and beside each as PDF, for papers.

    Returns:
        The PNG files.
    """
    for end in (".p[nd][gf]", "_panel_[0-9]*.p[nd][gf]"):  # there may have been more
        for old in folder.glob(f"{glob.escape(stem)}{end}"):
            old.unlink()
    paths = {folder / f"{name}.png": figure for name, figure in named(stem, figures).items()}
    for path, figure in paths.items():
        save(figure, path)
        save(figure, path.with_suffix(".pdf"))
    return list(paths)


def number_at(row: Row, name: str) -> float:
    """Get a number of a table; NaN where there is none."""
    value = row.get(name)
    return float("nan") if value in (None, "") else float(value)


def one_axes(x: str, y: str, title: str, size: tuple[float, float] = (8.0, 4.5)) -> tuple[Figure, Any]:
    """Make a figure with one pair of axes; size in inches."""
    figure = Figure(figsize=size, dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=x, ylabel=y, title=wrapped(title, int(7.5 * size[0])))
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(whole())
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def legend_below(axes: Any, title: str | None = None) -> None:
    """Put the legend, if anything is labelled, below the axes, where it takes none of a narrow picture's width."""
    texts = axes.get_legend_handles_labels()[1]
    if not texts:
        return
    two = max((len(line) for text in texts for line in text.split("\n")), default=0) <= 26
    near = {"handlelength": 1.5, "columnspacing": 1.0}
    axes.figure.legend(loc="outside lower center", ncols=1 + two, frameon=False, title=title, **near)


def whole() -> MaxNLocator:
    """Make ticks at whole numbers."""
    return MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True, min_n_ticks=1)


def round_marker(rounds: Sequence[int]) -> str | None:
    """Choose markers where lines alone would hide how few points there are."""
    return "o" if len(rounds) == 1 else "." if len(rounds) <= 20 else None


def wrapped(text: str, width: int) -> str:
    """Break lines that are longer than ``width`` letters."""
    return "\n".join(line for part in text.split("\n") for line in textwrap.wrap(part, width))


def heat_map(
    figure: Figure,
    axes: Any,
    table: Any,
    label: str,
    numbers: Sequence[Sequence[str]] | None = None,
    top: float | None = None,
    power: float = 1.0,
    bar: str = "right",
) -> None:
    """Fill the axes with a table; numbers are written into its cells, ``top`` is the last colour's value.

    ``bar`` is the side of the scale of colours: "bottom" takes none of a narrow picture's width.
    """
    norm = mpl.colors.PowerNorm(power, vmin=0, vmax=top)
    image = axes.imshow(table, cmap=MAP, norm=norm, aspect="auto", interpolation="nearest")
    ticks = whole() if image.norm.vmax is None or image.norm.vmax > 2 else None
    figure.colorbar(image, ax=axes, label=label, ticks=ticks, location=bar)
    axes.grid(visible=False)
    for i, row in enumerate(numbers or []):
        for j, text in enumerate(row):
            dark = image.norm(table[i, j]) <= 0.5  # NaN is not
            axes.text(j, i, text, ha="center", va="center", color="white" if dark else "black")


def pieces(columns: Sequence[T], letters: int, width: float) -> list[list[T]]:
    """Cut a heat map's columns into as few pieces as let a phone show the text of its cells.

    Args:
        columns: The columns.
        letters: Number of letters of the longest line in a cell.
        width: Width of a piece, in inches.

    >>> pieces([1, 2, 3, 4, 5], letters=8, width=2.5)
    [[1, 2, 3], [4, 5]]
    """
    most = max(int(width / (0.08 * letters + 0.1)), 1)
    count = max(-(-len(columns) // most), 1)
    each = -(-len(columns) // count)
    return [[*columns[i : i + each]] for i in range(0, len(columns), each)]


def slant(names: Collection[str], most: int) -> dict[str, Any]:
    """How to turn the names at an axis: aslant where one is longer than so many letters."""
    return {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if max(map(len, names)) > most else {}


def on_one_scale(figures: Sequence[Figure]) -> None:
    """Give pictures that stand side by side the same vertical axis."""
    lows, highs = zip(*(figure.axes[0].get_ylim() for figure in figures), strict=True)
    for figure in figures:
        figure.axes[0].set_ylim(min(lows), max(highs))


def class_ticks(axis: Any, c: int, classes: Sequence[str] | None = None) -> None:
    """Mark every class, by its name if it has one, or every fifth or tenth of many."""
    if classes is not None and c <= 20:
        axis.set_ticks(range(c), [class_name(z, classes) for z in range(c)])
        axis.set_tick_params(rotation=90 if axis.axis_name == "x" else 0)
    else:
        axis.set_ticks(range(0, c, 1 if c <= 20 else 5 if c <= 50 else 10))


def height(names: Collection[str], letters: int = 30) -> float:
    """Compute the height in inches: every row is as high as the name with the most lines."""
    return len(names) * (0.25 + 0.18 * max(wrapped(name, letters).count("\n") + 1 for name in names))


def name_rows(axes: Any, names: Collection[str], letters: int = 30) -> None:
    """Name the rows, the first on top, with at most so many letters to a line."""
    axes.set_yticks(range(len(names)), [wrapped(name, letters) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)


def stretches(numbers: Collection[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of each run of consecutive numbers."""
    ordered = sorted(numbers)
    starts = [n for i, n in enumerate(ordered) if not i or ordered[i - 1] != n - 1]
    ends = [n for i, n in enumerate(ordered) if i + 1 == len(ordered) or ordered[i + 1] != n + 1]
    yield from zip(starts, ends, strict=True)
