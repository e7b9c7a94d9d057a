"""The tables inside RESULTS.md and TOURNAMENT.md, made from the kept cells.

A table stands between ``<!-- measured: TABLE [--scale X] [OVERRIDES...] -->``, which says what to show as the command
line of reproduce.py does, and ``<!-- end -->``; a tournament's ones begin with ``<!-- tournament: [OPTIONS...] -->``,
with the options of tournament.py.  Claims of which nothing is measured are left out.
"""

import re
import shlex
from argparse import ArgumentParser
from pathlib import Path

from lightning_fl.errors import SettingError
from lightning_fl.study.grid import Grid
from lightning_fl.study.options import add_selection, selected
from lightning_fl.study.report import Report
from lightning_fl.study.table import Table
from lightning_fl.study.table_report import measured
from lightning_fl.study.tournament import KEPT, Tournament
from lightning_fl.study.tournament_report import panels_of, report

_END = "<!-- end -->"
_BLOCK = re.compile(
    r"(<!-- (measured|tournament):(.*?)-->)[ \t\r]*\n.*?(<!-- end -->|<!-- (?:measured|tournament):|\Z)", re.DOTALL
)


def filled(page: str) -> str:
    """Fill in every table from the kept cells.

    Raises:
        SettingError: If a marker names a table that is not there or of which nothing is kept, or has no end.
    """

    def fill(found: re.Match[str]) -> str:
        if found[4] != _END:
            raise SettingError(f"a table needs {_END} below it, {found[1].strip()} has none.")
        return f"{found[1]}\n\n{_BLOCKS[found[2]](found[3].strip())}\n{_END}"

    return _BLOCK.sub(fill, page)


def _measured(marker: str) -> str:
    parser = ArgumentParser()
    parser.add_argument("table")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--scale", type=float, default=1.0)
    given = parser.parse_intermixed_args(shlex.split(marker))
    grid = Grid(Table.load(given.table), given.scale, given.overrides, [], Path(), kept_only=True)
    if not grid.records:
        raise SettingError(f"nothing is kept of {marker}: {grid.kept} is not there.")
    return Report("", *measured(grid)).markdown(level=2)


def _tournament(marker: str) -> str:
    parser = ArgumentParser()
    add_selection(parser)
    tournament = Tournament(selected(parser.parse_intermixed_args(shlex.split(marker))), KEPT.parent)
    if not tournament.records:
        raise SettingError(f"nothing is kept of tournaments: {KEPT} is not there.")
    return report(tournament, panels_of(tournament)).markdown(level=2)


_BLOCKS = {"measured": _measured, "tournament": _tournament}
