"""Train one federation and write its files."""

import json
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.callbacks import LambdaCallback

from lightning_fl import files
from lightning_fl.aggregator.average import Average
from lightning_fl.callback.graceful_stop import GracefulStop
from lightning_fl.callback.participants import Participants
from lightning_fl.callback.record import Record
from lightning_fl.callback.round_bar import RoundBar
from lightning_fl.callback.round_checkpoint import RoundCheckpoint
from lightning_fl.run import loggers, page
from lightning_fl.run import summary as report
from lightning_fl.run.assemble import check_together, make_data, make_module, make_trainer
from lightning_fl.run.check import check_folder
from lightning_fl.run.config import default_settings
from lightning_fl.run.fit import fit
from lightning_fl.run.lock import held
from lightning_fl.run.saved import COMPLETED, contents, contents_path, finished, last_checkpoint, starting_point
from lightning_fl.run.version import version


def train(
    config: DictConfig,
    folder: Path,
    reference: list[float | None] | None = None,
    describe: bool = True,
    callbacks: Sequence[pl.Callback] = (),
    stop: GracefulStop | None = None,
) -> dict[str, Any]:
    """Train one federation.

    Args:
        config: What ``conf/train.yaml`` composes.
        folder: Where the run's files go.
        reference: Recall of each class by plain averaging without attack, for max-recall-drop.
        describe: Whether to print who takes part and what came out.
        callbacks: Further callbacks.
        stop: Ends the run after the current round when told to.  None: a new one.

    Returns:
        The summary, which ``folder/summary.json`` holds.

    Raises:
        SettingError: If something does not fit, or another process trains into the folder.
        DataError: If a file cannot be read or written.
    """
    settings: Any = OmegaConf.to_container(config, resolve=True)
    # Now: code may change while the run trains, and what cannot be composed is said before.
    code, found, usual = version(), contents(settings), default_settings()
    module, data, record = make_module(config, reference), make_data(config), Record(folder)
    checkpoint, stop = RoundCheckpoint(last_checkpoint(folder), config.checkpoint_every), stop or GracefulStop()
    shown = [Participants() if describe else None, RoundBar() if config.trainer.enable_progress_bar else None]

    def begin(trainer: pl.Trainer, module: pl.LightningModule) -> None:  # the checkpoint, if any, has been read
        trainer.should_stop = stopped_before
        if trainer.is_global_zero:
            clear(folder, start)
            files.write(folder / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(settings)))
            if found:
                files.write(contents_path(folder), json.dumps(found))

    trainer = make_trainer(
        config, folder, [record, stop, checkpoint, LambdaCallback(on_fit_start=begin), *shown, *callbacks]
    )
    check_together(module, data, trainer)
    first = trainer.is_global_zero  # of several processes this one writes and prints
    describe = describe and first
    with held(folder) if first else nullcontext(), ExitStack() as logging:
        if first:
            check_folder(folder, settings)  # again: another command may have trained into it since
        start = starting_point(config.ckpt_path, folder)
        # By a callback; the same command again finds the checkpoint of its last round.
        stopped_before = start == last_checkpoint(folder) and (finished(folder) or {}).get("status") == COMPLETED[1]
        if first:
            logging.enter_context(loggers.attached(trainer, config, code, start))
        if describe:
            print(report.places(folder, trainer.loggers), flush=True)
        summary = fit(module, data, trainer, record, stop, code, start, checkpoint.path)
        try:
            if first:
                report.write(module, record, summary, folder, usual)
        finally:  # whatever a full disk has kept from being written
            if describe:
                undefended = isinstance(module.aggregator, Average) and bool(summary["byzantine_clients"])
                print(report.results(summary, folder, undefended), flush=True)
        loggers.results(trainer.loggers, summary, record.metrics.rows)
    if not first:
        with suppress(OSError):  # Hydra has made a folder for each process that did not agree on one
            folder.rmdir()
    return summary


def end_if_stopped(summary: dict[str, Any], stop: GracefulStop) -> None:
    """End what would go on after a run if that was stopped, even if it was in its last round.

    Raises:
        KeyboardInterrupt: If it was; says by what.
    """
    if summary["status"] == "interrupted" or stop.received:
        raise KeyboardInterrupt(summary["reason"] or f"stopped by {stop.received}")


def clear(folder: Path, start: Path | None) -> None:
    """Remove what an earlier run has left in this folder and this one does not go on from."""
    last = last_checkpoint(folder)
    if start is None or start.resolve() != last.resolve():
        last.unlink(missing_ok=True)
    results = ["summary.json", "clients.csv", "report.html", *(f"{name}.png" for name in page.CAPTIONS)]
    contents_path(folder).unlink(missing_ok=True)
    for name in [*results, *(["metrics.csv", "weights.csv", "checkpoints/best.ckpt"] if start is None else [])]:
        (folder / name).unlink(missing_ok=True)
