"""The tables inside RESULTS.md, TOURNAMENT.md and pages of docs, made from the kept cells.

A table stands between ``<!-- measured: TABLE [--scale X] [OVERRIDES...] -->``, which says what to show as the command
line of reproduce.py does, and ``<!-- end -->``; a tournament's ones begin with ``<!-- tournament: [OPTIONS...] -->``,
with the options of tournament.py.  Claims of which nothing is measured are left out.  ``<!-- verdicts: -->`` begins a
table of all the page's claims: how many hold, which do not, and at how many seeds cells were measured.
"""

import re
import shlex
from argparse import ArgumentParser
from pathlib import Path

from lightning_fl.errors import SettingError
from lightning_fl.study.grid import Grid
from lightning_fl.study.options import add_selection, selected
from lightning_fl.study.report import Report
from lightning_fl.study.table import TABLES, Table, judge
from lightning_fl.study.table_report import measured
from lightning_fl.study.tournament import Tournament
from lightning_fl.study.tournament_report import panels_of, report
from lightning_fl.tables import cell as markdown_cell

_END = "<!-- end -->"
_KINDS = "measured|tournament|verdicts"
_BLOCK = re.compile(rf"(<!-- ({_KINDS}):(.*?)-->)[ \t\r]*\n.*?(<!-- end -->|<!-- (?:{_KINDS}):|\Z)", re.DOTALL)
_PART = re.compile(r"^(#{2,3}) (.*)$|<!-- measured:(.*?)-->", re.MULTILINE)


def filled(page: str) -> str:
    """Fill in every table from the kept cells.

    Raises:
        SettingError: If a marker names a table that is not there or of which nothing is kept, or has no end.
    """

    def fill(found: re.Match[str]) -> str:
        if found[4] != _END:
            raise SettingError(f"a table needs {_END} below it, {found[1].strip()} has none.")
        text = _verdicts(page) if found[2] == "verdicts" else _BLOCKS[found[2]](found[3].strip())
        return f"{found[1]}\n\n{text}\n{_END}"

    return _BLOCK.sub(fill, page)


def _grid(marker: str) -> Grid:
    parser = ArgumentParser()
    parser.add_argument("table")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--scale", type=float, default=1.0)
    given = parser.parse_intermixed_args(shlex.split(marker))
    grid = Grid(Table.load(given.table), given.scale, given.overrides, [], Path(), kept_only=True)
    if not grid.records:
        raise SettingError(f"nothing is kept of {marker}: {grid.kept} is not there.")
    return grid


def _verdicts(page: str) -> str:
    """Count the claims that hold, table by table, name those that do not, and say how many seeds judge them."""
    head = ["Claims of", "Held", "Missed", "Open", "Seeds", "`scripts/reproduce.py`"]
    lines = [f"| {' | '.join(head)} |", "| --- | ---: | --- | ---: | ---: | --- |"]
    headings = {"##": "", "###": ""}
    for level, heading, marker in _PART.findall(page):
        if level:
            headings |= {"##": heading, "###": ""} if level == "##" else {"###": heading}
            continue
        grid, place = _grid(marker.strip()), headings["###"] or headings["##"]
        verdicts = {claim["text"]: judge(grid.table, claim, grid.mean)[0] for claim in grid.table.claims}
        held = [text for text, found in verdicts.items() if found == "passed"]
        missed = [text for text, found in verdicts.items() if found == "failed"]
        where = ": ".join(filter(None, headings.values()))
        anchor = re.sub(r"[^\w -]", "", place.lower()).replace(" ", "-")
        counted = f"{len(held)} of {len(verdicts)} | {markdown_cell('; '.join(missed)) or 'none'}"
        left = len(verdicts) - len(held) - len(missed)
        seeds = sorted({len(grid.measured(cell)) for cell in grid.overrides} - {0})
        several = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(*seeds)
        lines += [f"| [{where}](#{anchor}) | {counted} | {left} | {several} | `{marker.strip()}` |"] if verdicts else []
    return "\n".join(lines) + "\n"


def _measured(marker: str) -> str:
    return Report("", *measured(_grid(marker))).markdown(level=2)


def _tournament(marker: str) -> str:
    parser = ArgumentParser()
    add_selection(parser)
    tournament = Tournament(selected(parser.parse_intermixed_args(shlex.split(marker))), TABLES)
    if not tournament.records:
        raise SettingError(
            f"nothing is kept of this tournament: {tournament.kept} is not there, or has none of its cells."
        )
    return report(tournament, panels_of(tournament)).markdown(level=2)


_BLOCKS = {"measured": _measured, "tournament": _tournament}
