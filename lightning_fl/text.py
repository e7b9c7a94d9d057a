"""Descriptions and tables for terminals and documents."""

from collections.abc import Sequence
from pathlib import Path

from lightning_fl.arguments import arguments


def settings(thing: object) -> str:
    """Describe an aggregator, adversary, partition or client by its name and its arguments."""
    import pytorch_lightning as pl

    values = {name: getattr(thing, name) for name in arguments(type(thing)) if hasattr(thing, name)}
    shown = [settings(v) if isinstance(v, pl.Callback) else v for v in values.values()]
    return f"{type(thing).__name__}({', '.join(f'{k}={v}' for k, v in zip(values, shown, strict=True))})"


def many(number: int, word: str) -> str:
    """Count things in words.

    >>> many(1, "round"), many(0, "run")
    ('1 round', '0 runs')
    """
    return f"{number} {word}{'s' * (number != 1)}"


def shown(folder: str | Path) -> str:
    """Name a folder relative to the working folder, if it is inside."""
    path = Path(folder).absolute()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out a table for the terminal, columns right-aligned."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in [header, *rows]]
    return "\n".join(["  " + line for line in [lines[0], "-" * len(lines[0]), *lines[1:]]])


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay out a table in Markdown, all columns but the first right-aligned."""
    ruler = ["---", *["---:"] * (len(header) - 1)]
    return [f"| {' | '.join(map(cell, line))} |" for line in [header, ruler, *rows]]


def cell(text: str) -> str:
    r"""Write a cell of a table in Markdown.

    >>> print(cell("Krum|a"))
    Krum\|a
    """
    return text.replace("|", "\\|")


def latex(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay out a table in LaTeX, for the package booktabs."""
    body = [" & ".join(map(_latex, line)) + r" \\" for line in [header, *rows]]
    body = [f"{{}}{line}" if line.startswith("[") else line for line in body]  # else the option of the \\ before
    lines = [rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}", r"\toprule", body[0], r"\midrule", *body[1:]]
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


_LATEX = {letter: f"\\{letter}" for letter in "&%_#${}"}
_LATEX |= {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
_LATEX |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "±": r"$\pm$", "−": "$-$"}
