"""What a run tells its loggers: its settings, its results, and the id by which a resumed run goes on."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.loggers import Logger

from lightning_fl import files
from lightning_fl.callback.record import Row
from lightning_fl.run.assemble import make
from lightning_fl.run.differences import named
from lightning_fl.run.facts import least_recall
from lightning_fl.run.identity import PLACES, Config

# What a logger's id is called, by the name of what makes it.
_IDS = {"wandb_logger": "id", "WandbLogger": "id", "MLFlowLogger": "run_id"}
_NAMED = {"rule": "aggregator", "attack": "adversary"} | {z: z for z in ("data", "partition", "model", "client")}


@contextmanager
def attached(trainer: pl.Trainer, config: DictConfig, code: str, start: Path | None = None) -> Iterator[None]:
    """Give the trainer the run's loggers, and tell them the settings; at the end they are closed.

    A logger may create files, so everything that can fail comes first.

    Args:
        trainer: The run's.
        config: What ``conf/train.yaml`` composes.
        code: The version of the code that trains.
        start: The checkpoint that the run continues from.  The loggers of the run that left it go on, too:
            ``loggers.json`` in its folder has their ids.
    """
    chosen: Any = config.get("logger") or {}
    nodes = {"logger": chosen} if "_target_" in chosen else {name: node for name, node in chosen.items() if node}
    ids = {} if start is None else _read(start)
    loggers: dict[str, Logger] = {}
    for name, node in nodes.items():
        key = _IDS.get(node["_target_"].rpartition(".")[2], "")
        goes_on = key and name in ids and not node.get(key)
        loggers[name] = make(node, **({key: ids[name]} if goes_on else {}))
    trainer.loggers = list(loggers.values())
    told = settings(config, code)
    for name, logger in loggers.items():
        # A sweep's agent locks its parameters' names: "aggregator" stays "boba", and its settings would be lost.
        logger.log_hyperparams(told | ({"settings": told} if "WANDB_SWEEP_ID" in os.environ else {}))
        if nodes[name]["_target_"].rpartition(".")[2] in _IDS and logger.version is not None:
            ids[name] = str(logger.version)
    try:
        if ids:
            files.write(Path(config.run_dir) / "loggers.json", f"{json.dumps(ids)}\n".encode())
        yield
    except BaseException:
        _close(trainer.loggers, failed=True)
        raise
    _close(trainer.loggers)


def _close(loggers: Sequence[Logger], failed: bool = False) -> None:
    for logger in loggers:
        finish = getattr(getattr(logger, "experiment", None), "finish", None)
        if finish is not None:
            finish(*[1] * failed)  # W&B's exit code
        else:
            logger.finalize("failed" if failed else "success")  # once more: Lightning closed it before the results


def _read(checkpoint: Path) -> dict[str, str]:
    try:
        found: dict[str, str] = json.loads((checkpoint.absolute().parents[1] / "loggers.json").read_text("utf-8"))
        return found
    except (OSError, ValueError):  # logged nowhere, or copied out of its run's folder: a new run to its loggers
        return {}


def settings(config: DictConfig, code: str) -> Config:
    """List the settings that a logger shows: without paths, with the names of what was chosen, and the code's version.

    Args:
        config: What ``conf/train.yaml`` composes.
        code: The version.
    """
    resolved: Any = OmegaConf.to_container(config, resolve=True)
    kept = {
        group: {key: inner for key, inner in value.items() if f"{group}.{key}" not in PLACES}
        if isinstance(value, dict)
        else value
        for group, value in resolved.items()
        if group not in PLACES | {"ckpt_path"}
    }
    names = {shown: named(resolved.get(group), group) for shown, group in _NAMED.items()}
    return kept | {"names": names | {"method": resolved.get("method_name")}, "version": code}


def results(loggers: Sequence[Logger], summary: dict[str, Any], rows: Sequence[Row]) -> None:
    """Tell the loggers a run's results.

    Args:
        loggers: The run's.
        summary: What `summary.summarise` gives.
        rows: One per round.
    """
    evaluated = [row["accuracy"] for row in rows if row.get("accuracy") is not None]
    final = {name: summary[name] for name in ("accuracy", "validation_accuracy", "mrd")}
    final |= {"best_accuracy": max(evaluated, default=None), "worst_recall": least_recall(summary["recall"])}
    final |= {"kappa": summary["robustness"]["mean"]}
    final |= {f"attack/{name}": value for name, value in (summary.get("attack") or {}).items()}
    for logger in loggers:
        logger.log_metrics({f"final/{name}": value for name, value in final.items() if value is not None})
