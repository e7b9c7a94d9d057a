"""Run a sweep file of Weights & Biases on this machine, without an account.

python scripts/sweep.py sweeps/boba_f.yaml                              its runs, one at a time
python scripts/sweep.py sweeps/boba_f.yaml --workers 4                  four at a time
python scripts/sweep.py sweeps/boba_f.yaml --on ray --workers 8         eight at a time on a cluster of Ray's, or here
python scripts/sweep.py sweeps/boba_f.yaml --dry-run                    what it would run
python scripts/sweep.py sweeps/frpg_lambda.yaml --trials 10             ten runs instead of the file's run_cap
python scripts/sweep.py sweeps/rule_by_attack.yaml data=mnist           another setting, added or instead of the file's

It leaves a table (sweep.md, sweep.csv) and a picture (sweep.png) in runs/sweeps/NAME.  A stopped sweep continues there:
finished runs are kept, stopped ones continue from their checkpoints, failed ones are tried again.  Processes may
share a folder.  Methods random and bayes (TPE) draw through optuna (pip install "lightning-fl[sweep]"), which keeps a
journal there.  A diverged run counts as worse than any other.  early_terminate is left to W&B: here every run goes to
its end.
"""

import argparse
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

from lightning_fl.commands import parser_of
from lightning_fl.errors import SettingError, install
from lightning_fl.run.config import spell, take_own
from lightning_fl.run.explain import explained
from lightning_fl.study.engine import executor
from lightning_fl.study.options import check_workers
from lightning_fl.study.pool import Progress, sharing, stop_when_told
from lightning_fl.study.sweep import Sweep, check, grid, search, write
from lightning_fl.text import many


def run(options: argparse.Namespace) -> int:
    """Run the sweep that the command line asks for; gives the exit code."""
    folder = (options.folder or Path("runs/sweeps") / options.file.stem).resolve()
    sweep = Sweep(options.file, folder, options.overrides)
    trials = sweep.run_cap if options.trials is None else options.trials
    check_workers(options)
    if trials is not None and trials < 1:
        raise SettingError(f"--trials must be at least 1, got {trials}.")
    if sweep.method != "grid" and find_spec("optuna") is None:
        raise SettingError(f"method {sweep.method} needs optuna, got none; {install('sweep')}.")
    if sweep.method == "grid":
        planned = grid(sweep, trials)
        total = len(planned)
    elif trials is not None:
        planned, total = check(sweep), trials
    else:
        raise SettingError(
            f"method {sweep.method} needs a number of runs, got none; give --trials, or the file a run_cap."
        )
    where = f" on {options.on}" if options.on else sharing(options.workers)
    print(f"{sweep.name}: {many(total, 'run')}, {sweep.method}, into {folder}{where}", flush=True)
    for key in sweep.ignored:
        print(f"{key} is ignored: without W&B every run goes to its end.")
    if options.dry_run:
        if sweep.method != "grid":
            print("Each value, or near the ends of a distribution, once:")
        print("\n".join(spell("train", *run.overrides) for run in planned))
        return 0
    execute = executor(options.workers, options.on)
    outcomes = execute(planned) if sweep.method == "grid" else search(sweep, total, options.workers, execute)
    progress, failed = Progress(total, options.workers), set()
    folder.mkdir(parents=True, exist_ok=True)
    with closing(outcomes):
        try:
            for outcome in outcomes:
                print(progress.line(outcome), flush=True)
                failed |= {outcome.run} if outcome.error else set()
        except KeyboardInterrupt:
            print("\nStopped; the same command goes on from here.", file=sys.stderr)
            raise
        finally:
            if sweep.values:
                print(write(sweep, failed) + f"\nFiles in {folder}: sweep.md, sweep.csv, sweep.png", flush=True)
    return 1 if failed else 0


def main() -> None:
    """Run the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("file", type=Path, help="the sweep file")
    parser.add_argument("overrides", nargs="*", help="settings of every run, as for train")
    parser.add_argument("--workers", type=int, default=1, help="runs at a time (1)")
    parser.add_argument("--on", metavar="WHERE", help="ray, or a cluster's address (ray://HOST:10001); else here")
    parser.add_argument("--trials", type=int, help="runs at most (run_cap of the file; a grid: all)")
    parser.add_argument("--folder", type=Path, help="where everything goes (runs/sweeps/NAME)")
    parser.add_argument("--dry-run", action="store_true", help="only say what would run")
    stop_when_told()
    with explained():
        sys.exit(run(parser.parse_intermixed_args(take_own(sys.argv[1:]))))
