"""What every run does, with files or without: train, evaluate and summarise."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from omegaconf import DictConfig

from lightning_fl import __version__
from lightning_fl.callback.graceful_stop import GracefulStop
from lightning_fl.callback.record import Record, Row
from lightning_fl.data.base import FederatedDataModule
from lightning_fl.module import FederatedModule
from lightning_fl.run import loggers
from lightning_fl.run import summary as report
from lightning_fl.run.assemble import check_together, make_data, make_module, make_trainer
from lightning_fl.run.saved import SavedRun
from lightning_fl.run.version import version


def fit(
    module: FederatedModule,
    data: FederatedDataModule,
    trainer: pl.Trainer,
    record: Record,
    stop: GracefulStop,
    code: str = __version__,
    start: Path | None = None,
    end: Path | None = None,
) -> dict[str, Any]:
    """Train, evaluate and summarise, once the parts were found to fit together.

    Args:
        module: The run's.
        data: The run's.
        trainer: The run's, with rule and attack among its callbacks, and with the next two.
        record: Takes the rows.
        stop: Ends the run after the current round when told to.
        code: Version of the code that trains.
        start: The checkpoint that the run goes on from.
        end: Where the checkpoint of its last round goes.

    Returns:
        The summary; see `summary.summarise`.
    """
    with silence():
        trainer.fit(module, datamodule=data, ckpt_path=start)
        if end is not None:
            trainer.save_checkpoint(end)
        evaluated = trainer.strategy.broadcast(record.holds(module.evaluation))  # other processes have no earlier rows
        if not module.diverged and not evaluated:
            trainer.test(module, datamodule=data, verbose=False)
    status, reason = report.outcome(module, stop)
    return report.summarise(module, record, status, code, reason)


def fit_in_memory(config: DictConfig, stop: GracefulStop | None = None) -> tuple[dict[str, Any], list[Row]]:
    """Train one federation from its settings, without files.

    Args:
        config: What ``conf/train.yaml`` composes; it leaves nothing in ``run_dir`` but what its loggers write.
        stop: Ends the run after the current round when told to.  None: a new one.

    Returns:
        What ``summary.json`` of such a run would hold, and its record, one row per round.

    Raises:
        SettingError: If something does not fit.
        DataError: If the data cannot be read.
    """
    module, data, record, stop = make_module(config), make_data(config), Record(None), stop or GracefulStop()
    quiet = {"enable_checkpointing": False, "enable_progress_bar": False}
    with silence():
        trainer = make_trainer(config, Path(), [record, stop], **quiet)
        check_together(module, data, trainer)
    with loggers.attached(trainer, config, version()) if config.get("logger") else nullcontext():
        summary, rows = fit(module, data, trainer, record, stop), record.metrics.rows
        report.chart(trainer.loggers, SavedRun(Path(), {}, rows, record.weights.rows, summary))
        loggers.results(trainer.loggers, summary, rows)
    return summary, rows


@contextmanager
def silence() -> Iterator[None]:
    """Suppress what Lightning says about devices, and its advice on data loaders, which a federation does not use.

    A profiler that was asked for reports all the same.
    """
    logging.getLogger("pytorch_lightning.profilers").setLevel(logging.INFO)
    levels = {talk: talk.level for talk in map(logging.getLogger, ("pytorch_lightning", "lightning_fabric"))}
    for talk in levels:
        talk.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="pytorch_lightning")
            yield
    finally:
        for talk, level in levels.items():
            talk.setLevel(level)
