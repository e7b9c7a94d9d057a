"""Descriptions and tables for terminals and documents."""

import re
from collections.abc import Collection, Sequence
from math import isnan
from pathlib import Path
from typing import Any

from lightning_fl.arguments import arguments

Place = tuple[int, int]  # row and column, without the header
PREAMBLE = r"% needs \usepackage{booktabs} in the preamble"


def settings(thing: object) -> str:
    """Describe an aggregator, adversary, partition or client by its name and its arguments.

    What its class has in ``unsaid`` is left out at the value that stands there.
    """
    import pytorch_lightning as pl

    unsaid = getattr(thing, "unsaid", {})
    values = {name: getattr(thing, name) for name in arguments(type(thing)) if hasattr(thing, name)}
    values = {name: value for name, value in values.items() if name not in unsaid or value != unsaid[name]}
    shown = [settings(v) if isinstance(v, pl.Callback) else v for v in values.values()]
    return f"{type(thing).__name__}({', '.join(f'{k}={v}' for k, v in zip(values, shown, strict=True))})"


def many(number: int, word: str) -> str:
    """Count things in words.

    >>> many(1, "round"), many(0, "run")
    ('1 round', '0 runs')
    """
    return f"{number} {word}{'s' * (number != 1)}"


def class_name(z: int, classes: Sequence[str] | None) -> str:
    """Name a class where the data have names, as much of it as fits beside a line; otherwise say its number.

    >>> class_name(2, None), class_name(0, ["a very long name of a class"])
    ('class 2', 'a very long name…')
    """
    if classes is None:
        return f"class {z}"
    return classes[z] if len(classes[z]) <= 17 else f"{classes[z][:16]}…"


def shown(folder: str | Path) -> str:
    """Name a folder relative to the working folder, if it is inside."""
    path = Path(folder).absolute()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def plain(text: str) -> str:
    r"""Keep a name to one line that steers no terminal: names of settings and files may be somebody else's.

    >>> plain("\x1b[2Ja\nb")
    ' [2Ja b'
    """
    return "".join(letter if letter.isprintable() else " " for letter in text)


def for_csv(value: Any) -> Any:
    """Mark text that a spreadsheet would run as a formula as text.

    >>> for_csv("=1+2"), for_csv("-1.5"), for_csv("-x"), for_csv(-1.5)
    ("'=1+2", '-1.5', "'-x", -1.5)
    """
    if not isinstance(value, str):
        return value
    value = plain(value)
    return value if re.fullmatch(r"(?![=+@＝＋－＠-]).*|-[0-9.]+(e[-+]?[0-9]+)?", value) else f"'{value}"


def without_tags(markdown: str) -> str:
    """Show HTML in Markdown as text, but for comments and line breaks.

    >>> without_tags("a < 1<br><script>")
    'a < 1<br>&lt;script>'
    """
    return re.sub(r"<(?=[A-Za-z/!?])(?!br>|!-- )", "&lt;", markdown)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out a table for the terminal, columns right-aligned."""
    header, rows = [*map(plain, header)], [[*map(plain, row)] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in [header, *rows]]
    return "\n".join(["  " + line for line in [lines[0], "-" * len(lines[0]), *lines[1:]]])


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], best: Collection[Place] = ()) -> list[str]:
    """Lay out a table in Markdown, all columns but the first right-aligned, the ``best`` cells bold."""
    ruler = ["---", *["---:"] * (len(header) - 1)]
    body = [[_if_best(best, i, j, cell(text), "**{}**") for j, text in enumerate(row)] for i, row in enumerate(rows)]
    return [f"| {' | '.join(line)} |" for line in [[cell(text) for text in header], ruler, *body]]


def cell(text: str) -> str:
    r"""Write a cell of a table in Markdown.

    >>> print(cell("Krum|a"))
    Krum\|a
    """
    return plain(text).replace("|", "\\|").replace("](", "]\\(")  # no link


def latex(header: Sequence[str], rows: Sequence[Sequence[str]], best: Collection[Place] = ()) -> list[str]:
    """Lay out a table in LaTeX, for the package booktabs, the ``best`` cells bold."""
    body = [
        [_if_best(best, i, j, _latex(text), r"\textbf{{{}}}") for j, text in enumerate(row)]
        for i, row in enumerate(rows)
    ]
    printed = [" & ".join(line) + r" \\" for line in [[_latex(text) for text in header], *body]]
    printed = [f"{{}}{line}" if line.startswith("[") else line for line in printed]  # else the option of the \\ before
    lines = [PREAMBLE, rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}", r"\toprule", printed[0], r"\midrule"]
    return [*lines, *printed[1:], r"\bottomrule", r"\end{tabular}"]


def _if_best(best: Collection[Place], i: int, j: int, text: str, form: str) -> str:
    return form.format(text) if (i, j) in best else text


def best_places(table: Sequence[Sequence[float | None]], more: Sequence[bool]) -> set[Place]:
    """Find the best numbers of each column, if it has several rows.

    Args:
        table: Numbers by row and column; None where there is none.
        more: Whether more is better, by column.

    >>> sorted(best_places([[1.0, 2.0], [3.0, None]], [True, False]))
    [(0, 1), (1, 0)]
    """
    found = set()
    for j, better in enumerate(more):
        column = {i: value for i, row in enumerate(table) if (value := row[j]) is not None and not isnan(value)}
        if len(table) > 1 and column:
            top = (max if better else min)(column.values())
            found |= {(i, j) for i, value in column.items() if value == top}
    return found


def _latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in plain(text))


_LATEX = {letter: f"\\{letter}" for letter in "&%_#${}"}
_LATEX |= {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
_LATEX |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "±": r"$\pm$", "−": "$-$"}
