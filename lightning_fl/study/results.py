"""The tables inside RESULTS.md, made from the kept cells.

A table stands between ``<!-- measured: TABLE [--scale X] [OVERRIDES...] -->``, which says what to show as the command
line of reproduce.py does, and ``<!-- end -->``.  Claims of which nothing is measured are left out.
"""

import re
import shlex
from argparse import ArgumentParser
from pathlib import Path

from lightning_fl.errors import SettingError
from lightning_fl.study.grid import Grid
from lightning_fl.study.table import TABLES, Table
from lightning_fl.study.table_report import measured

_BLOCK = re.compile(r"(<!-- measured: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: str) -> str:
    """Fill in every table from scripts/tables/measured.

    Raises:
        SettingError: If a marker names a table that is not there or of which nothing is kept.
    """
    return _BLOCK.sub(lambda found: f"{found[1]}\n{_block(found[2])}\n{found[3]}", page)


def _block(marker: str) -> str:
    parser = ArgumentParser()
    parser.add_argument("table")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--scale", type=float, default=1.0)
    given = parser.parse_intermixed_args(shlex.split(marker))
    grid = Grid(Table.load(given.table), given.scale, given.overrides, [], Path(), kept_only=True)
    if not grid.plan:
        raise SettingError(f"nothing is kept of {marker}: {TABLES / 'measured' / grid.stem}.csv is not there.")
    lines = [line for line in measured(grid) if "| not measured yet |" not in line]
    return "\n".join(lines).rstrip("\n") + "\n"
