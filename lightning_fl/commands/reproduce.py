"""A table or figure of a paper, measured: missing cells are trained, the others taken from earlier runs.

python scripts/reproduce.py                                         list the tables
python scripts/reproduce.py boba_2_mnist                            every cell at seed 0
python scripts/reproduce.py boba_2_mnist --rows BOBA,Average --columns IPM --seeds 3
python scripts/reproduce.py fed_nga_3 --scale 0.1 --workers 2       a tenth of the rounds
python scripts/reproduce.py boba_2_mnist --on ray --workers 8       on a cluster of Ray's, or here by Ray
python scripts/reproduce.py raga_2 data=mnist_5k                    further overrides as for train
python scripts/reproduce.py boba_2_mnist --told 1.5                 rules are told a wrong number of attackers
python scripts/reproduce.py boba_2_mnist --twins 0.2                and a fifth of them moved by rounding alone
python scripts/reproduce.py my_table.yaml                           a table of your own: rules x attacks, over seeds

Tables are files of scripts/tables, which an installed package brings along; scripts/tables/measured holds finished
cells (--keep writes them).  At the end FOLDER/TABLE.md, .csv, .tex, .html and .png show what is measured, beside
what the paper prints.  CONTRIBUTING.md shows a table of your own.
"""

import argparse
import sys
from collections.abc import Iterable
from math import inf
from pathlib import Path

from lightning_fl.commands import parser_of
from lightning_fl.errors import SettingError
from lightning_fl.run.config import choose, spell, spelled, take_own
from lightning_fl.run.explain import explained
from lightning_fl.study.cell import Cell
from lightning_fl.study.grid import Grid, read
from lightning_fl.study.options import add_running, add_twins, check_keep, multiples, seeds_of, share_of_twins
from lightning_fl.study.runner import Progress, Runner, stop_when_told
from lightning_fl.study.table import Table
from lightning_fl.study.table_report import keep, overview, terminal, write
from lightning_fl.text import many

FOLDER = "runs/tables"


def picked(text: str | None, valid: Iterable[str], what: str) -> list[str]:
    """Read --rows or --columns: labels separated by commas, in any case, by default all."""
    labels = list(valid)
    if text is None:
        return labels
    known = {label.lower(): label for label in labels} | {label: label for label in labels}
    parts = [text] if text.strip().lower() in known else text.split(",")  # a label may have a comma
    given = [label.strip() for label in parts if label.strip()] or [""]
    return [choose(known.get(label, known.get(label.lower(), label)), labels, what) for label in given]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("table", nargs="?", help="a name, or a file of your own; without: list them")
    parser.add_argument("overrides", nargs="*", help="further settings of every run, as for train")
    parser.add_argument("--rows", help="only these, separated by commas")
    parser.add_argument("--columns", help="only these, separated by commas")
    parser.add_argument(
        "--seeds", help="how many (such as 3) or which (0,1,2; one alone: 7,); default 1, or your table's"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the rounds and the schedule's rounds")
    parser.add_argument("--told", metavar="MULTIPLE", help="f of every run, as a multiple of how many attack (1.5)")
    add_running(parser, FOLDER)
    add_twins(parser)
    parser.add_argument("--keep", action="store_true", help="write finished cells to scripts/tables/measured")
    parser.add_argument("--prune", action="store_true", help="with --keep: drop cells measured with other settings")
    return parser.parse_intermixed_args(take_own(sys.argv[1:]))


def command_for(cell: Cell, given: argparse.Namespace) -> str:
    """Spell what trains one cell where --scale or --told computes settings: naming those would compose every cell."""
    row, column = cell.labels
    options = ["--rows", row, "--columns", column, "--seeds", f"{cell.seed},", "--scale", f"{given.scale:g}"]
    options += ["--told", given.told] if given.told else []
    options += ["--twins"] if cell.twin else []
    options += [] if given.folder == Path(FOLDER) else ["--folder", str(given.folder)]
    return spell("reproduce", given.table, *given.overrides, *options)


def reproduce(given: argparse.Namespace) -> int:
    """Train what is missing and write the report; gives the exit code."""
    table = Table.load(given.table)
    seeds = seeds_of(given.seeds or (str(table.seeds) if table.own else "1"))
    if not 0 < given.scale < inf:
        raise SettingError(f"--scale must be above 0 and finite, got {given.scale:g}.")
    runner, share = Runner(given.workers, given.on), share_of_twins(given)
    if given.prune and not given.keep:
        raise SettingError("--prune drops rows of the kept file and needs --keep; give both, or neither.")
    check_keep(given)
    if given.keep and table.own:
        raise SettingError(f"--keep is for the tables of scripts/tables, got {given.table}; leave it out.")
    rows, columns = picked(given.rows, table.rows, "row"), picked(given.columns, table.columns, "column")
    shown = [*seeds, *(seed for seed in range(table.seeds) if seed not in seeds)]
    print(f"{table.title}", flush=True)
    told = multiples(given.told) or []
    if len(told) > 1:
        raise SettingError(f"--told of a table needs one number from 0, got {given.told}.")
    grid = Grid(table, given.scale, spelled(given.overrides), shown, given.folder, told=next(iter(told), None))
    dropped = grid.outdated(read(grid.kept)) if given.prune else []
    grid.drop(dropped)
    twins = grid.twin_cells(rows, columns, seeds[0], share) if share else []
    missing = grid.missing([*grid.cells(rows, columns, seeds), *twins])
    if given.dry_run and given.overrides and missing:
        grid.compose(missing[0])  # refuses a misspelt setting
    planned = [] if given.dry_run else [(cell, grid.compose(cell)) for cell in missing]
    total = len({run.folder for _, run in planned})
    print(f"{many(len(missing), 'cell') if given.dry_run else many(total, 'run')} to do", flush=True)
    computed = grid.scale != 1 or grid.told is not None
    for cell in missing if given.dry_run else []:
        print(f"  {cell.title}: {command_for(cell, given) if computed else spell('train', *cell.command)}")
    progress = Progress(total, given.workers)
    try:
        progress.follow(grid.train(planned, runner))
    finally:
        written = [] if given.dry_run else [f"Report: {write(grid)}"]  # which says what command made it
        print(terminal(grid, rows, columns), end="")
        written += [f"kept: {keep(grid, dropped)}"] if given.keep else []
        print("; ".join(written))
    return 1 if progress.failed else 0


def main() -> None:
    """Run the command line."""
    stop_when_told()
    with explained():
        given = arguments()
        if given.table is None:
            share_of_twins(given)  # it may have taken the table's name
            print(overview(given.folder))
        else:
            sys.exit(reproduce(given))
