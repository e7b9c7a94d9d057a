"""Run a sweep file of Weights & Biases on this machine, without an account.

python scripts/sweep.py sweeps/boba_f.yaml                              its runs, one at a time
python scripts/sweep.py sweeps/boba_f.yaml --workers 4                  four at a time
python scripts/sweep.py sweeps/boba_f.yaml --dry-run                    what it would run
python scripts/sweep.py sweeps/frpg_lambda.yaml --trials 10             ten runs instead of the file's run_cap
python scripts/sweep.py sweeps/rule_by_attack.yaml data=mnist           another setting, added or instead of the file's

It leaves a table (sweep.md, sweep.csv) and a picture (sweep.png) in runs/sweeps/NAME.  A stopped sweep goes on there:
finished runs are kept, stopped ones go on from their checkpoints, failed ones are tried again.  Processes may share a
folder.  Methods random and bayes (TPE) draw through optuna (pip install -e ".[sweep]"), which keeps a journal there.  A
diverged run counts as worse than any other.  early_terminate is left to W&B: here every run goes to its end.
"""

import argparse
import csv
import json
import shlex
import sys
from collections.abc import Generator, Sequence
from contextlib import closing
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import runs  # first: makes torchvision importable beside a CPU-only torch

# isort: split
import sweep_file
import train
from lightning_fl import SettingError, plot, report

Values = dict[str, Any]


class Sweep:
    """A sweep file, what the command line adds to it, and the runs that came of it.

    Args:
        path: The file.
        folder: Where the runs go.
        given: Further overrides; they replace parameters of the same name.

    Raises:
        SettingError: If the file is not in order.
    """

    def __init__(self, path: Path, folder: Path, given: Sequence[str] = ()):
        content = sweep_file.read(path)
        self.name, self.folder, self.method, self.run_cap = path.stem, folder, content["method"], content.get("run_cap")
        self.ignored = sorted({"early_terminate"} & set(content))
        self.metric = sweep_file.METRICS[content["metric"]["name"]]
        self.maximize = content["metric"].get("goal") == "maximize"
        words = content["command"]
        words = words[words.index("${program}") + 1 :] if "${program}" in words else words
        self.fixed = [word for word in words if not word.startswith("${")] + train.spelled(given)
        replaced = {word.lstrip("+~").split("=")[0] for word in self.fixed}
        axes = {name: sweep_file.axis(name, spec, self.method) for name, spec in content["parameters"].items()}
        constants = {name for name, spec in content["parameters"].items() if "value" in spec}
        self.fixed += [
            f"{name}={spec['value']}" for name, spec in content["parameters"].items() if name in constants - replaced
        ]
        self.axes = {name: axis for name, axis in axes.items() if name not in constants | replaced}
        self.drawn = {
            name: "log" if "log" in str(content["parameters"][name].get("distribution")) else "linear"
            for name, axis in self.axes.items()
            if not isinstance(axis, list)
        }
        self.values: dict[runs.Run, Values] = {}

    def ends(self) -> dict[str, list[Any]]:
        """List the values of each parameter; of a distribution two near its ends."""
        return {n: axis if isinstance(axis, list) else [axis(0.001), axis(0.999)] for n, axis in self.axes.items()}

    def run(self, values: Values) -> runs.Run:
        """Make the run of one choice of values, told to train.py as W&B's agent tells ``${args_no_hyphens}``.

        Raises:
            SettingError: If train.py would refuse it.
        """
        overrides = (*self.fixed, *(f"{name}={value}" for name, value in values.items()))
        config = runs.compose(overrides)
        if self.metric == "mrd" and config.reference is None:
            raise SettingError(f"the metric mrd of {self.name} needs a reference, got none; add reference=run.")
        label = " ".join(f"{name}={_short(value)}" for name, value in values.items()) or self.name
        return runs.Run(label, overrides, self.folder / train.identity(config))


def grid(sweep: Sweep, trials: int | None) -> list[runs.Run]:
    """Make the runs of all combinations of values, or of the first ``trials``."""
    points = [dict(zip(sweep.axes, values, strict=True)) for values in product(*sweep.ends().values())][:trials]
    sweep.values = {sweep.run(point): point for point in points}
    return list(sweep.values)


def check(sweep: Sweep) -> list[runs.Run]:
    """Make runs in which each value occurs once: what train.py would refuse, it refuses here."""
    first = {name: values[0] for name, values in sweep.ends().items()}
    points = [first, *(first | {name: value} for name, values in sweep.ends().items() for value in values[1:])]
    return [sweep.run(point) for point in points]


def search(sweep: Sweep, trials: int, workers: int) -> Generator[runs.Outcome, None, None]:
    """Run trials of method random or bayes until the folder's journal has so many; earlier ones give their results.

    Trial k is drawn with seed k, so a sweep goes on as if it had never stopped.  The journal has u in [0, 1] for a
    parameter with a distribution, and the place of the value for one with a list.
    """
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sweep.folder.mkdir(parents=True, exist_ok=True)
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(sweep.folder / "journal.log")))
    make = optuna.samplers.RandomSampler if sweep.method == "random" else optuna.samplers.TPESampler
    direction = "maximize" if sweep.maximize else "minimize"
    place, share = optuna.distributions.CategoricalDistribution, optuna.distributions.FloatDistribution(0, 1)
    space: dict[str, optuna.distributions.BaseDistribution] = {
        n: place(range(len(axis))) if isinstance(axis, list) else share for n, axis in sweep.axes.items()
    }
    settings = json.dumps([sweep.method, sweep.metric, direction, sorted(sweep.fixed), sweep.ends()], default=str)
    with runs.alone(sweep.folder):
        study = optuna.create_study(study_name="sweep", storage=storage, direction=direction, load_if_exists=True)
        if study.user_attrs.get("settings", settings) != settings:
            raise SettingError(f"{sweep.folder} needs trials of this sweep, got others; give another --folder.")
        study.set_user_attr("settings", settings)
    seen = 0
    while True:
        with runs.alone(sweep.folder):
            known = len(study.trials)
            if known == seen:
                for number in range(known, min(trials, known + workers) if sweep.method == "bayes" else trials):
                    study.sampler = make(seed=number)
                    study.ask(space)
            fresh = study.trials[seen:trials]
        if not fresh:
            return
        seen += len(fresh)
        batch: dict[runs.Run, list[int]] = {}
        for trial in fresh:
            if trial.params.keys() == space.keys():  # else its process was killed while it asked
                drawn = {
                    n: a[trial.params[n]] if isinstance(a, list) else a(trial.params[n]) for n, a in sweep.axes.items()
                }
                run = sweep.run(drawn)
                sweep.values[run] = drawn
                batch.setdefault(run, []).append(trial.number)
        for outcome in runs.execute(list(batch), workers):
            if outcome.summary is not None:
                value = outcome.summary[sweep.metric]
                state = optuna.trial.TrialState.PRUNED if value is None else None  # to TPE, worse than any value
                for number in batch[outcome.run]:
                    study.tell(number, value, state=state, skip_if_finished=True)
            yield outcome


def write(sweep: Sweep, failed: set[runs.Run]) -> str:
    """Write the table and the picture into the sweep's folder.

    Returns:
        The table for the terminal, best first.
    """
    rows = []
    for run, values in sweep.values.items():
        summary = run.summary() or {"status": "failed" if run in failed else "unfinished"}
        results = {key: summary.get(key) for key in ("accuracy", "mrd", "status", "seconds")}
        rows.append(values | results | {"folder": run.folder.name})
    title = f"{sweep.name} ({sweep.method})"
    plot.sweep(rows, list(sweep.axes), sweep.metric, title, sweep.drawn).savefig(sweep.folder / "sweep.png")
    sign = -1 if sweep.maximize else 1
    rows.sort(key=lambda row: (row[sweep.metric] is None, sign * (row[sweep.metric] or 0)))
    measured = ["accuracy", *(["mrd"] if any(row["mrd"] is not None for row in rows) else [])]
    header = [*sweep.axes, *measured, "status", "seconds", "folder"]
    with (sweep.folder / "sweep.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, header, extrasaction="ignore")
        table.writeheader()
        table.writerows(rows)
    cells = [[_cell(name, row[name]) for name in header] for row in rows]
    order = f"{'highest' if sweep.maximize else 'lowest'} {sweep.metric} first"
    lines = [f"# {sweep.name}", "", f"Method {sweep.method}, {order}; all with `{' '.join(sweep.fixed)}`.", ""]
    lines += ["| " + " | ".join(line) + " |" for line in [header, ["---:"] * len(header), *cells]]
    (sweep.folder / "sweep.md").write_text("\n".join([*lines, "", "![](sweep.png)", ""]))
    return report.table(header, cells)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name in ("accuracy", "mrd"):
        return f"{100 * value:.2f} %"
    return f"{value:.0f}" if name == "seconds" else _short(value)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def run(options: argparse.Namespace) -> int:
    """Run the sweep that the command line asks for; gives the exit code."""
    folder = (options.folder or Path("runs/sweeps") / options.file.stem).resolve()
    sweep = Sweep(options.file, folder, options.overrides)
    trials = sweep.run_cap if options.trials is None else options.trials
    for name, number in [("trials", trials), ("workers", options.workers)]:
        if number is not None and number < 1:
            raise SettingError(f"--{name} must be at least 1, got {number}.")
    if sweep.method != "grid" and find_spec("optuna") is None:
        raise SettingError(f'method {sweep.method} needs optuna, got none; pip install -e ".[sweep]".')
    if sweep.method == "grid":
        planned = grid(sweep, trials)
        total = len(planned)
    elif trials is not None:
        planned, total = check(sweep), trials
    else:
        raise SettingError(
            f"method {sweep.method} needs a number of runs, got none; give --trials, or the file a run_cap."
        )
    print(f"{sweep.name}: {total} runs, {sweep.method}, into {folder}", flush=True)
    for key in sweep.ignored:
        print(f"{key} is ignored: without W&B every run goes to its end.")
    if options.dry_run:
        if sweep.method != "grid":
            print("Each value, or near the ends of a distribution, once:")
        print("\n".join(shlex.join(["python", "scripts/train.py", *run.overrides]) for run in planned))
        return 0
    outcomes = (
        runs.execute(planned, options.workers) if sweep.method == "grid" else search(sweep, total, options.workers)
    )
    progress, failed = runs.Progress(total, options.workers), set()
    folder.mkdir(parents=True, exist_ok=True)
    with closing(outcomes):
        try:
            for outcome in outcomes:
                print(progress.line(outcome), flush=True)
                failed |= {outcome.run} if outcome.error else set()
        except KeyboardInterrupt:
            print("\nStopped; the same command goes on from here.", file=sys.stderr)
            return 130
        finally:
            if sweep.values:
                print(write(sweep, failed) + f"\nFiles in {folder}: sweep.md, sweep.csv, sweep.png", flush=True)
    return 1 if failed else 0


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="the sweep file")
    parser.add_argument("overrides", nargs="*", help="settings of every run, as train.py takes them")
    parser.add_argument("--workers", type=int, default=1, help="runs at a time (1)")
    parser.add_argument("--trials", type=int, help="runs at most (run_cap of the file; a grid: all)")
    parser.add_argument("--folder", type=Path, help="where everything goes (runs/sweeps/NAME)")
    parser.add_argument("--dry-run", action="store_true", help="only say what would run")
    runs.stop_when_told()
    with train.explained():
        sys.exit(run(parser.parse_intermixed_args()))


if __name__ == "__main__":
    main()
