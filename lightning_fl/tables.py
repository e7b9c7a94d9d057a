"""Tables for terminals and documents."""

from collections.abc import Collection, Sequence
from math import isnan

from lightning_fl.text import plain

Place = tuple[int, int]  # row and column, without the header
PREAMBLE = r"% needs \usepackage{booktabs} in the preamble; bold: a column's best number, whatever its spread"


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
