"""Which rule survives: every rule under every attack and degree of label skew, over seeds.

python scripts/tournament.py --quick                                     nine rules, six attacks: 15 minutes
python scripts/tournament.py --workers 2                                 every rule, eleven attacks: days on two cores
python scripts/tournament.py --rules boba,krum --attacks ipm,lie --skew iid,0.1
python scripts/tournament.py --byzantine 5,15,33 --data mnist --model lenet
python scripts/tournament.py --quick --add my_rule --add "krum + momentum: aggregator=krum client=momentum"
python scripts/tournament.py --quick trainer.max_steps=200               further overrides as for train
python scripts/tournament.py --protocol 2026.3-silo --rules krum,rfa     another league, of few clients

The first seed plays every attack, the others those that cost a rule at least half of what its worst one does there
(--again), or did most to a class.
Your own rules in conf/aggregator take part.  If stopped, the same command continues; several may share a folder.
FOLDER/tournament.html, .md, .csv and .tex show what is finished so far, standing.html lets you sort and filter it by
what rules need and attackers know, cells.csv has every run.
"""

import argparse
import sys
import time

from tqdm import tqdm

from lightning_fl.commands import parser_of
from lightning_fl.errors import SettingError
from lightning_fl.run.check import checked
from lightning_fl.run.config import take_own
from lightning_fl.run.explain import explained
from lightning_fl.run.version import version
from lightning_fl.study.cell import Cell
from lightning_fl.study.options import add_running, add_selection, add_twins, check_keep, selected, share_of_twins
from lightning_fl.study.runner import Runner, duration, resumable, stop_when_told
from lightning_fl.study.store import Record
from lightning_fl.study.tournament import FAILED, Tournament, keep
from lightning_fl.study.tournament_report import terminal, write
from lightning_fl.text import many

_EVERY = 600.0  # seconds between reports of an unfinished tournament


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_of(__doc__)
    add_selection(parser)
    add_running(parser, "runs/tournament")
    add_twins(parser)
    parser.add_argument("--keep", action="store_true", help="add finished runs to scripts/tables, of a checkout")
    return parser.parse_intermixed_args(take_own(sys.argv[1:]))


def play(tournament: Tournament, cells: list[Cell], runner: Runner, what: str) -> list[Record]:
    """Play cells with a bar, and write a report every ten minutes; give those that failed."""
    reported, failed = time.monotonic(), list[Record]()
    with tqdm(total=len(cells), desc=what, unit="run", smoothing=0.05) as bar:
        for row in tournament.play(cells, runner, version()):
            if row is not None:
                bar.set_postfix_str(f"{row['rule']}, {row['attack']}, {row['skew']}: {row['status']}")
                if row["status"] == FAILED:
                    if row["rule"] not in {known["rule"] for known in failed}:
                        tqdm.write(row["trace"], file=sys.stderr)
                    failed.append(row)
            bar.update()
            if time.monotonic() - reported > _EVERY:
                write(tournament)
                reported = time.monotonic()
    return failed


def play_all(tournament: Tournament, runner: Runner, dry: bool = False) -> list[Record]:
    """Play all that is missing, or say how much it is; give the runs that failed."""
    failed: list[Record] = []
    begun: set[Cell] = set()
    what = "rates and radii" if tournament.entries.offered else "rates"
    while tuning := [cell for cell in tournament.missing(tournament.tuning()) if cell not in begun]:
        print(f"{many(len(tuning), 'run')} to choose {what}{_after(tournament.tuning_following)}", flush=True)
        if dry:
            break
        failed += play(tournament, tuning, runner, f"Choosing {what}")
        begun.update(tuning)
    while True:  # what further seeds play is known after the first
        cells = tournament.cells()
        missing = [cell for cell in tournament.missing(cells) if cell not in begun]
        if missing or not begun:
            after = _after(tournament.size - len(cells))
            print(f"{many(len(missing), 'run')} of the tournament to play{after}", flush=True)
        if not missing or dry:
            return failed
        failed += play(tournament, missing, runner, "Playing")
        begun.update(missing)


def _after(unknown: int) -> str:
    return f", up to {unknown} more once these are known" if unknown else ""


def main() -> None:
    """Run the command line."""
    stop_when_told()
    with explained(), resumable():
        given = arguments()
        runner, share = Runner(given.workers, given.on), share_of_twins(given)
        check_keep(given)
        tournament = Tournament(selected(given), given.folder)
        if given.keep and not tournament.standing:
            raise SettingError("--keep adds to the standing, which has the settings of its protocol, got others.")
        if given.dry_run and given.overrides:  # a misspelt one is said at once
            checked([*tournament.tuning(), *tournament.cells()][0].command)
        started = time.monotonic()
        if not given.dry_run:
            tournament.check(runner, version())
        try:
            failed = play_all(tournament, runner, given.dry_run)
            twins = tournament.missing(tournament.twins(share)) if share else []
            waiting = bool(share) and given.dry_run and bool(tournament.missing(tournament.cells()))
            if twins or waiting:
                after = ", more once their runs are known" if waiting else ""
                print(f"{many(len(twins), 'twin')} to play{after}", flush=True)
            if twins and not given.dry_run:
                failed += play(tournament, twins, runner, "Twins")
        finally:
            report = f"Report after {duration(time.monotonic() - started)}: "
            written = [] if given.dry_run else [f"{report}{write(tournament)}"]
            written += [f"kept: {keep(tournament)}"] if given.keep else []
            print(f"\n{terminal(tournament)}\n{'; '.join(written)}")
        if failed:
            rules = ", ".join(dict.fromkeys(row["rule"] for row in failed))
            print(
                f"{many(len(failed), 'run')} failed, of {rules}; the first: {failed[0]['reason']}. The same command "
                f"tries them again.",
                file=sys.stderr,
            )
            sys.exit(1)
