"""A sweep file of Weights & Biases, run on this machine."""

from collections.abc import Generator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from lightning_fl import plot
from lightning_fl.errors import SettingError
from lightning_fl.run.check import checked
from lightning_fl.run.config import spelled
from lightning_fl.run.identity import identity, overridden
from lightning_fl.run.lock import held
from lightning_fl.study import sweep_file
from lightning_fl.study.report import Report, Section
from lightning_fl.study.runner import Outcome, Runner
from lightning_fl.study.worker import Run
from lightning_fl.text import many

Values = dict[str, Any]
PARTS = ("aggregator", "adversary", "client", "partition", "federation", "server", "schedule", "loss")


class Sweep:
    """A sweep file, what the command line adds to it, and the runs made from it.

    Args:
        path: The file.
        folder: Where the runs go.
        given: Further overrides; they replace parameters of the same name.

    Raises:
        SettingError: If the file is not valid.
    """

    def __init__(self, path: Path, folder: Path, given: Sequence[str] = ()):
        content = sweep_file.read(path)
        self.name, self.folder, self.method, self.run_cap = path.stem, folder, content["method"], content.get("run_cap")
        self.ignored = sorted({"early_terminate"} & set(content))
        self.metric = sweep_file.METRICS[content["metric"]["name"]]
        self.maximize = content["metric"].get("goal") == "maximize"
        told = sweep_file.fixed(content) or []
        self.fixed = [word for word in told if not word.startswith("${")] + spelled(given)
        replaced = set(map(overridden, self.fixed))
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
        self.values: dict[Run, Values] = {}
        self._validated: bool | None = None

    def ends(self) -> dict[str, list[Any]]:
        """List the values of each parameter; for a distribution, two near its ends."""
        return {n: axis if isinstance(axis, list) else [axis(0.001), axis(0.999)] for n, axis in self.axes.items()}

    def run(self, values: Values) -> Run:
        """Make the run of one choice of values, passed to train.py as W&B's agent passes ``${args_no_hyphens}``.

        Raises:
            SettingError: If train.py would refuse it.
        """
        overrides = (*self.fixed, *(f"{name}={value}" for name, value in values.items()))
        config = checked(overrides)
        if self.metric == "mrd" and config.reference is None:
            raise SettingError(f"the metric mrd of {self.name} needs a reference, got none; add reference=run.")
        validated = bool(config.data.get("validation_share"))
        if self.metric != "mrd" and self._validated not in (None, validated):
            raise SettingError(f"{self.name} needs data.validation_share in all runs or in none, got it in some.")
        self._validated = validated
        if self.metric == "accuracy" and validated:
            self.metric = "validation_accuracy"  # never choose by test samples if there are validation samples
        if self.metric == "validation_accuracy" and not validated:
            raise SettingError(
                f"the metric validation_accuracy of {self.name} needs samples for validation, got none; set "
                f"data.validation_share."
            )
        from lightning_fl.run.assemble import make  # --help does not wait for torch

        for group in PARTS:
            make(config.get(group))  # which checks the ranges of its settings
        label = " ".join(f"{name}={_short(value)}" for name, value in values.items()) or self.name
        return Run(label, overrides, self.folder / identity(config), self.name)


def grid(sweep: Sweep, trials: int | None) -> list[Run]:
    """Make the runs of all combinations of values, or of the first ``trials``."""
    points = [dict(zip(sweep.axes, values, strict=True)) for values in product(*sweep.ends().values())][:trials]
    sweep.values = {sweep.run(point): point for point in points}
    return list(sweep.values)


def check(sweep: Sweep) -> list[Run]:
    """Make runs in which each value occurs once, so that what train.py would refuse is refused here."""
    first = {name: values[0] for name, values in sweep.ends().items()}
    points = [first, *(first | {name: value} for name, values in sweep.ends().items() for value in values[1:])]
    return [sweep.run(point) for point in points]


def search(sweep: Sweep, trials: int, runner: Runner) -> Generator[Outcome, None, None]:
    """Run trials of method random or bayes.

    Trial k is drawn with seed k and, by bayes, with the results before it; finished runs give theirs at once.  So a
    stopped sweep goes on as if it had not been stopped.

    Args:
        sweep: What to run.
        trials: How many.
        runner: Trains them; method bayes draws as many at a time as it has workers.

    Yields:
        Each trial's outcome; of trials that draw the same run all but one take no time.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    make = optuna.samplers.RandomSampler if sweep.method == "random" else optuna.samplers.TPESampler
    study = optuna.create_study(direction="maximize" if sweep.maximize else "minimize")
    place, share = optuna.distributions.CategoricalDistribution, optuna.distributions.FloatDistribution(0, 1)
    space: dict[str, optuna.distributions.BaseDistribution] = {
        n: place(range(len(axis))) if isinstance(axis, list) else share for n, axis in sweep.axes.items()
    }
    at_once = runner.workers if sweep.method == "bayes" else trials
    for begin in range(0, trials, at_once):
        batch: dict[Run, list[int]] = {}
        for number in range(begin, min(begin + at_once, trials)):
            study.sampler = make(seed=number)
            drawn = study.ask(space).params
            values = {n: a[drawn[n]] if isinstance(a, list) else a(drawn[n]) for n, a in sweep.axes.items()}
            run = sweep.run(values)
            sweep.values[run] = values
            batch.setdefault(run, []).append(number)
        for outcome in runner.train(batch):
            if outcome.summary is not None:
                value = outcome.summary.get(sweep.metric)
                state = optuna.trial.TrialState.PRUNED if value is None else None  # to TPE, worse than any value
                for number in batch[outcome.run]:
                    study.tell(number, value, state=state)
            yield outcome
            yield from (replace(outcome, seconds=0.0) for _ in batch[outcome.run][1:])  # drawn again


def write(sweep: Sweep, failed: set[Run]) -> str:
    """Write the table and the picture into the sweep's folder.

    Returns:
        The table for the terminal: by the values that were swept; those of a search, best first.
    """
    rows = []
    for run, values in sweep.values.items():
        summary = run.summary() or {"status": "failed" if run in failed else "unfinished"}
        results = {key: summary.get(key) for key in ("accuracy", "validation_accuracy", "mrd", "status", "seconds")}
        rows.append(values | results | {"folder": run.folder.name})
    title = f"{sweep.name} ({sweep.method})"
    pictures = plot.sweep(rows, list(sweep.axes), sweep.metric, title, sweep.drawn)
    found = [row for row in rows if row[sweep.metric] is not None]
    top = max if sweep.maximize else min
    best = top(found, key=lambda row: row[sweep.metric]) if found else None
    if sweep.method == "grid":
        axes = {name: _order(axis) for name, axis in sweep.ends().items()}
        rows.sort(key=lambda row: [axis.index(row[name]) for name, axis in axes.items()])
    else:
        sign = -1 if sweep.maximize else 1
        rows.sort(key=lambda row: (row[sweep.metric] is None, sign * (row[sweep.metric] or 0)))
    measured = [
        "accuracy",
        *(name for name in ("validation_accuracy", "mrd") if any(row[name] is not None for row in rows)),
    ]
    header = [*sweep.axes, *measured, "status", "seconds", "folder"]
    cells = [[_cell(name, row[name]) for name in header] for row in rows]
    numbers = [[str(row[name]) if isinstance(row[name], float) else row[name] for name in header] for row in rows]
    places = {(i, header.index(sweep.metric)) for i, row in enumerate(rows) if row is best}
    chosen = " ".join(f"{name}={_short(best[name])}" for name in sweep.axes) if best else ""
    shows = f"{many(len(rows), 'run')}, method {sweep.method}"
    shows += f"; {'highest' if sweep.maximize else 'lowest'} {sweep.metric}: " * bool(best)
    shows += f"{_cell(sweep.metric, best[sweep.metric])} at `{chosen}`." if best else "; none has a result."
    pages = {run.folder.name: f"{run.folder.name}/report.html" for run in sweep.values if run.summary()}
    sections = [Section("", picture=("sweep", "")), Section("", header, cells, places, pages=pages)]
    every = f"All with `{' '.join(sweep.fixed)}`."
    report = Report(sweep.name, [shows, every], sections, [header, *numbers], {"sweep": pictures})
    with held(sweep.folder, wait=True):  # several processes may share it
        report.write(sweep.folder, "sweep")
    return replace(report, paragraphs=[shows]).terminal()


def _order(axis: Sequence[Any]) -> list[Any]:
    """Put numbers by size, other values as the file has them."""
    return sorted(axis) if all(isinstance(value, int | float) for value in axis) else list(axis)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name in ("accuracy", "validation_accuracy", "mrd"):
        return f"{100 * value:.2f} %"
    return f"{value:.0f}" if name == "seconds" else _short(value)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
