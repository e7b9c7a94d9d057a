"""What a run leaves behind: its summary, and what a person reads at its end."""

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from math import isfinite
from pathlib import Path
from statistics import fmean as mean
from typing import Any

from pytorch_lightning.callbacks import EarlyStopping, Timer
from pytorch_lightning.loggers import Logger

from lightning_fl import __version__, files
from lightning_fl.adversary.base import Adversary
from lightning_fl.aggregator.guarantee import not_guaranteed
from lightning_fl.callback.graceful_stop import GracefulStop
from lightning_fl.callback.record import Record, Row, Table
from lightning_fl.errors import DataError
from lightning_fl.logger.place import place
from lightning_fl.module import FederatedModule
from lightning_fl.run import page
from lightning_fl.run.config import spell
from lightning_fl.run.facts import facts
from lightning_fl.run.identity import Config
from lightning_fl.run.saved import SavedRun, saved_config
from lightning_fl.run.version import provenance
from lightning_fl.text import said, shown

SCHEMA = 1  # of summary.json; raised when a key changes its meaning, not when one is added


def outcome(module: FederatedModule, stop: GracefulStop) -> tuple[str, str | None]:
    """Tell whether training was "completed", "stopped early" or "interrupted" or "diverged", and why it ended early.

    A callback that has judged the results stops it early; a signal or the trainer's time interrupts it.
    """
    done, planned = module.trainer.global_step, module.trainer.max_steps
    if module.diverged:
        return "diverged", module.diverged
    if done >= planned:
        return "completed", None
    if stop.received:
        return "interrupted", f"stopped by {stop.received}"
    callbacks: list[Any] = module.trainer.callbacks  # type: ignore[attr-defined]
    if any(isinstance(callback, Timer) and (callback.time_remaining() or 1) <= 0 for callback in callbacks):
        return "interrupted", f"stopped by the trainer's time after {done} of {planned} rounds"
    names = [type(callback).__name__ for callback in callbacks if isinstance(callback, EarlyStopping)]
    return "stopped early", f"stopped by {' or '.join(names) or 'a callback'} after {done} of {planned} rounds"


def summarise(
    module: FederatedModule, record: Record, status: str, version: str = __version__, reason: str | None = None
) -> dict[str, Any]:
    """Collect the results of a finished run.

    Args:
        module: The trained module.
        record: Its rows.
        status: "completed", "stopped early", "interrupted" or "diverged".
        version: Version of the code that trained it.
        reason: Why it ended early, where that is known.

    Returns:
        What ``summary.json`` holds; shares are in [0, 1].  The recall of a class without test samples is null, and so
        is the result of a diverged run: its last evaluation is kept under "last_evaluation".  "first_evaluation" is
        that of the initial model.  "client_accuracy" is null unless ``data.client_scores`` asks for it.  "attack" is
        present for attacks that measure their own success; of a backdoor that has a last round, with "success_peak"
        since its first one, "success_mean" over the evaluations of the last 30 attacked rounds, where there are any,
        and "lifespan", the rounds after the last one with a success rate above a half.
        "guarantee" says where a rule's bound on clients or attackers does not hold; null where it does, or has none.
    """
    evaluated = [row for row in record.metrics.rows if row.get("accuracy") is not None]
    last = evaluated[-1] if evaluated else {}
    results: dict[str, Any] = {**_recalls(module, last), "mrd": last.get("mrd")}
    results["validation_accuracy"] = last.get("validation_accuracy")
    spread = {name.removeprefix("client_accuracy/"): x for name, x in last.items() if name.startswith("client_acc")}
    results["client_accuracy"] = spread or None
    attack = {name.removeprefix("attack/"): value for name, value in last.items() if name.startswith("attack/")}
    if attack:
        results["attack"] = attack | _life(module.adversary, evaluated)
    diverged = status == "diverged"
    rows = record.metrics.rows
    rounds = rows[-1]["round"] if rows else 0
    weighed = [row for row in rows if "weight/honest" in row]
    shared = [row.get("weight/byzantine", 0.0) for row in weighed]  # 0 in a round that draws nobody who attacks
    weights = {
        "honest": _mean([row["weight/honest"] for row in weighed]),
        "byzantine": _mean(shared) if any("weight/byzantine" in row for row in weighed) else None,
    }
    communication = {
        name: int(sum(row.get(f"communication/{name}", 0) for row in rows))
        for name in ("floats_up", "floats_down", "sample_gradients")
    }
    return {
        "schema": SCHEMA,
        "version": version,
        "status": status,
        "reason": module.diverged or reason,
        "rounds": rounds,
        **(dict.fromkeys(results) if diverged else results),
        "first_evaluation": _recalls(module, record.first or {}),
        "last_evaluation": {"round": last.get("round"), **results},
        "guarantee": not_guaranteed(module.aggregator, module.data.federation, module.data.n_classes, rounds),
        "mean_weight": weights,
        "detection": {
            name: _mean([row[f"detection/{name}"] for row in rows if f"detection/{name}" in row])
            for name in ("true_alarms", "false_alarms", "auc")
        },
        "robustness": _robustness(module, rounds, rows),
        "byzantine_share": round(module.data.federation.byzantine_share(module.data.clients.sizes), 6),
        "communication": communication,
        "privacy": _privacy(module, rounds),
        "seconds": round(record.seconds, 3),
        "n_classes": module.data.n_classes,
        "classes": None if module.data.class_names is None else list(module.data.class_names),
        "byzantine_clients": list(module.data.federation.byzantine_ids),
        "reference_recall": module.reference_recall,
        "confusion": module.confusion,
        "provenance": provenance(version),
    }


def _privacy(module: FederatedModule, rounds: int) -> dict[str, float] | None:
    """Ask the client about the privacy of the honest one that took part in most rounds."""
    if module.client.privacy(0) is None:
        return None
    begun = rounds + (module.diverged or "").startswith(f"round {rounds + 1}:")  # in which clients had sent already
    drawn = Counter(client for t in range(begun) for client in module.data.federation.participants(t)[0])
    return module.client.privacy(max(drawn.values(), default=0))


def _life(attack: Adversary | None, evaluated: Sequence[Row]) -> dict[str, float | int]:
    """Give a backdoor's peak since its first round, its mean, and how many rounds it outlives its last one."""
    end = attack.to_round if attack else None
    if attack is None or end is None:
        return {}
    begun = [row for row in evaluated if row["round"] > attack.from_round]  # an attack's rounds count from 0
    rates = [(row["round"], row["attack/success_rate"]) for row in begun if "attack/success_rate" in row]
    if not rates:
        return {}
    attacked = [*islice(filter(attack.attacks_in, range(end, -1, -1)), 30)]
    during = [rate for done, rate in rates if done - 1 in attacked]
    last = attacked[0] + 1  # rounds that have ended then
    after = [(done, rate) for done, rate in rates if done > last]
    since = [last, *(done for done, _ in after)]
    lived = sum(done - before for before, (done, rate) in zip(since, after, strict=False) if rate > 0.5)
    averaged = {"success_mean": mean(during)} if during else {}
    return {"success_peak": max(rate for _, rate in rates)} | averaged | {"lifespan": lived}


def _recalls(module: FederatedModule, row: Row) -> dict[str, Any]:
    """Accuracy and recall of each class in an evaluation; None where they were not measured."""
    recall = [row.get(f"recall/{z}") for z in range(module.data.n_classes)] if "accuracy" in row else None
    return {"accuracy": row.get("accuracy"), "recall": recall}


def _robustness(module: FederatedModule, rounds: int, rows: Sequence[Row]) -> dict[str, float | int | None]:
    """Give mean and maximum of the finite kappas, the number of infinite ones, and theory's bound."""
    data = module.data
    equal = data.federation.weights(data.clients.sizes).unique().numel() == 1
    counts = data.federation.counts(rounds)
    bounds = [module.aggregator.kappa(h + b, b, equal) if b < h else None for h, b in counts]
    kappas = [row["robustness/kappa"] for row in rows if "robustness/kappa" in row]
    finite = [kappa for kappa in kappas if isfinite(kappa)]
    return {
        "mean": _mean(finite),
        "max": max(finite, default=None),
        "infinite_rounds": len(kappas) - len(finite),
        "bound": None if None in bounds else max(bound for bound in bounds if bound is not None),
    }


def places(folder: Path, loggers: Sequence[Logger]) -> str:
    """Say where a run records, and how to turn its loggers off."""
    off = f"logger=none turns {'it' if len(loggers) == 1 else 'them'} off"
    lines = [f"Folder     {shown(folder)}"]
    lines += [f"{'' if i else 'Logger':<11}{place(logger)}" for i, logger in enumerate(loggers)]
    return "\n".join([*lines, *([f"           {off}"] if loggers else [])])


def results(summary: dict[str, Any], folder: Path, undefended: bool = False) -> str:
    """Describe a run's results and say where its files are.

    Args:
        summary: What `summarise` gives.
        folder: The run's folder.
        undefended: Whether clients attacked plain averaging.
    """
    told = facts(summary)
    if summary["accuracy"] is not None and summary["mrd"] is None:
        told["max-recall-drop"] += " (reference=run makes one)"
    status, *found = told.items()
    rows = [status]
    if summary["reason"]:
        rows.append(("reason", summary["reason"]))
    if summary["guarantee"]:
        rows.append(("rule", summary["guarantee"]))
    if summary["status"] == "interrupted":
        of_many = f" (of -m, hydra.sweep.dir={shown(folder.parent)})" if folder.name.isdecimal() else ""
        rows.append(("to continue", f"repeat the command with ckpt_path=auto hydra.run.dir={shown(folder)}{of_many}"))
    if undefended and summary["status"] == "diverged":
        rows.append(("try", "a rule against the attack, such as aggregator=boba; plain averaging does not defend"))
    recall = summary["recall"] or []
    named = summary["classes"] or range(len(recall))
    shares = ["no samples" if value is None else f"{value:.1%}" for value in recall]
    cells = [f"{z}: {share}" for z, share in zip(named, shares, strict=False)][:100]
    recalls = [("" if i else "recall", "  ".join(cells[i : i + 5])) for i in range(0, len(cells), 5)]
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    kept = ("files", f"{shown(folder)}{os.sep}: {', '.join(names)}")
    rows += [*found[:1], *recalls, *found[1:], kept]  # recalls after the accuracy
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}  {value}" for name, value in rows)


def write(
    module: FederatedModule, record: Record, summary: dict[str, Any], folder: Path, default: Config | None = None
) -> None:
    """Write ``clients.csv``, the pictures, ``report.html`` and ``summary.json`` into the run's folder.

    Loggers that take pictures or curves get them.

    Args:
        module: The trained module.
        record: Its rows.
        summary: What `summarise` gives.
        folder: The run's folder; the report shows its ``config.yaml`` if there is one.
        default: The default configuration, from which the report says what differs.
    """
    path = folder / "config.yaml"
    config = saved_config(path) if path.exists() else {}
    b = len(summary["byzantine_clients"])
    attack = f"{b} {type(module.adversary).__name__}" if b else "no attack"
    title = None if config else f"{type(module.aggregator).__name__}, {attack}"
    run = SavedRun(folder, config, record.metrics.rows, record.weights.rows, summary, clients(module, record))
    pictures = publish(run, default, title)
    for name, picture in pictures.items():
        for logger in module.trainer.loggers:
            if hasattr(logger, "log_image"):
                logger.log_image(f"curves/{name}", [str(picture)])
    chart(module.trainer.loggers, run)


def publish(run: SavedRun, default: Config | None = None, title: str | None = None) -> dict[str, Path]:
    """Write ``clients.csv``, the pictures, ``report.html`` and, last, ``summary.json`` into ``run.folder``.

    Returns:
        The pictures' files by name.
    """
    write_rows(run.folder / "clients.csv", run.clients)
    try:
        pictures = page.write([run], run.folder, default, title)
    except DataError:
        raise
    except Exception as error:  # of matplotlib, its settings or fonts: the run itself has succeeded
        why = said(error, named=True)
        print(f"No pictures ({why}); {spell('plot', shown(run.folder))} draws them.", file=sys.stderr)
        pictures = {}
    text = json.dumps(run.summary, indent=2)  # which spreads a list of numbers over lines
    text = re.sub(r"\[\s+([^\[\]{}\"]+?)\s+\]", lambda numbers: f"[{' '.join(numbers[1].split())}]", text)
    files.write(run.folder / "summary.json", f"{text}\n")  # last: a run with a summary is finished
    return pictures


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write a CSV file; nothing if there are no rows."""
    table = Table(path)
    table.restore(rows)
    table.flush()


def chart(loggers: Sequence[Logger], run: SavedRun) -> None:
    """Give the curves of a run to the loggers that take some."""
    taking: list[Any] = [logger for logger in loggers if hasattr(logger, "log_series")]
    for name, (title, rounds, curves) in series(run).items() if taking else []:
        for logger in taking:
            logger.log_series(f"charts/{name}", title, rounds, curves)


def series(run: SavedRun) -> dict[str, tuple[str, list[int], dict[str, list[float]]]]:
    """Collect curves that belong in one chart: each class's recall, the weights of honest and of Byzantine clients.

    Returns:
        By name the heading, the rounds, and the values of each curve by its label; empty if there are no curves.
    """
    found: dict[str, tuple[str, list[int], dict[str, list[float]]]] = {}
    evaluated = run.evaluations
    if evaluated:
        curves = {"accuracy": [100 * row["accuracy"] for row in evaluated]}
        for z in sorted(int(name.removeprefix("recall/")) for name in evaluated[0] if name.startswith("recall/")):
            curves[run.classes[z] if run.classes else f"class {z}"] = [100 * row[f"recall/{z}"] for row in evaluated]
        found["recall"] = ("Recall of each class (%)", [row["round"] for row in evaluated], curves)
    if run.weights:
        attackers = {str(client) for client in run.byzantine}
        groups: list[tuple[list[float], list[float]]] = []
        for row in run.weights:
            shares = {client: 100 * weight for client, weight in row.items() if client != "round"}
            honest = [share for client, share in shares.items() if client not in attackers]
            groups.append((honest, [share for client, share in shares.items() if client in attackers]))
        curves = {"honest, mean": [mean(honest or [0.0]) for honest, _ in groups]}
        curves["honest, smallest"] = [min(honest, default=0.0) for honest, _ in groups]
        if any(byzantine for _, byzantine in groups):
            curves["Byzantine, mean"] = [mean(byzantine or [0.0]) for _, byzantine in groups]
            curves["Byzantine, largest"] = [max(byzantine, default=0.0) for _, byzantine in groups]
        found["weight"] = ("Weight of a client (%)", [row["round"] for row in run.weights], curves)
    return found


def clients(module: FederatedModule, record: Record) -> list[Row]:
    """List each client's samples by class, and the class shares that the rule estimated last."""
    counts = module.data.clients.class_counts().tolist()
    byzantine = set(module.data.federation.byzantine_ids)
    rows = []
    for client in sorted({*range(len(counts)), *byzantine}):
        held = enumerate(counts[client]) if client < len(counts) else []
        estimated = enumerate(record.label_distributions.get(client, []))
        row: Row = {"client": client, "byzantine": int(client in byzantine)}
        row |= {f"samples/{z}": number for z, number in held}
        rows.append(row | {f"estimate/{z}": round(share, 6) for z, share in estimated})
    return rows


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
