"""Run a sweep file of Weights & Biases on this machine, without an account.

python scripts/sweep.py sweeps/boba_f.yaml                              its runs, one at a time
python scripts/sweep.py sweeps/boba_f.yaml --workers 4                  four at a time
python scripts/sweep.py sweeps/boba_f.yaml --on ray --workers 8         eight at a time on a cluster of Ray's, or here
python scripts/sweep.py sweeps/boba_f.yaml --dry-run                    what it would run
python scripts/sweep.py sweeps/frpg_lambda.yaml --trials 10             ten runs instead of the file's run_cap
python scripts/sweep.py sweeps/rule_by_attack.yaml data=mnist           another setting, added or instead of the file's

It leaves a table (sweep.md, .csv, .tex and .html) and a picture (sweep.png; of several parameters, sweep_panel_1.png
and so on) in runs/sweeps/FILE.  A stopped sweep continues there: finished runs are kept, stopped ones continue from
their checkpoints, failed ones are tried again.
Processes may share the folder of a grid or of a random search.  Methods random and bayes (TPE) draw through optuna
(pip install "lightning-fl[sweep]").  A diverged run counts as worse than any other.  early_terminate is left to W&B:
here every run goes to its end.
"""

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

from lightning_fl.commands import parser_of
from lightning_fl.errors import SettingError, install
from lightning_fl.run.config import spell, take_own
from lightning_fl.run.explain import explained
from lightning_fl.study.options import add_running
from lightning_fl.study.runner import Progress, Runner, stop_when_told
from lightning_fl.study.sweep import Sweep, check, grid, search, write
from lightning_fl.text import many


def run(options: argparse.Namespace) -> int:
    """Run the sweep that the command line asks for; gives the exit code."""
    folder = (options.folder or Path("runs/sweeps") / options.file.stem).resolve()
    sweep = Sweep(options.file, folder, options.overrides)
    trials = sweep.run_cap if options.trials is None else options.trials
    runner = Runner(options.workers, options.on)
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
    print(f"{sweep.name}: {many(total, 'run')}, {sweep.method}, into {folder}{runner}", flush=True)
    for key in sweep.ignored:
        print(f"{key} is ignored: without W&B every run goes to its end.")
    if options.dry_run:
        if sweep.method != "grid":
            print("Each value, or near the ends of a distribution, once:")
        print("\n".join(spell("train", *run.overrides) for run in planned))
        return 0
    outcomes = runner.train(planned) if sweep.method == "grid" else search(sweep, total, runner)
    progress = Progress(total, options.workers)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        progress.follow(outcomes)
    finally:
        if sweep.values:
            print(write(sweep, progress.failed) + f"\nReport: {folder / 'sweep.md'}", flush=True)
            shown = {run.folder.name for run in sweep.values}
            others = [path for path in folder.glob("*/summary.json") if path.parent.name not in shown]
            if others:
                print(f"Left out: {many(len(others), 'run')} of other settings there; --folder keeps sweeps apart.")
    return 1 if progress.failed else 0


def main() -> None:
    """Run the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("file", type=Path, help="the sweep file")
    parser.add_argument("overrides", nargs="*", default=[], help="settings of every run, as for train")
    parser.add_argument("--trials", type=int, help="runs at most (run_cap of the file; a grid: all)")
    add_running(parser, "runs/sweeps/FILE")
    parser.set_defaults(folder=None)
    stop_when_told()
    with explained():
        sys.exit(run(parser.parse_intermixed_args(take_own(sys.argv[1:]))))
