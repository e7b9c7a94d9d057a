"""Train one federation and leave its files."""

import os
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from lightning_fl.callback.graceful_stop import GracefulStop
from lightning_fl.callback.participants import Participants
from lightning_fl.callback.record import Record
from lightning_fl.callback.round_bar import RoundBar
from lightning_fl.callback.round_checkpoint import RoundCheckpoint
from lightning_fl.run import summary as report
from lightning_fl.run.assemble import add_loggers, check_together, make_data, make_module, make_trainer
from lightning_fl.run.config import default_settings


def train(
    config: DictConfig, folder: Path, reference: list[float] | None = None, describe: bool = True
) -> dict[str, Any]:
    """Train one federation.

    Args:
        config: What ``conf/train.yaml`` composes.
        folder: Where the run's files go.
        reference: Recall of each class by plain averaging without attack, for max-recall-drop.
        describe: Whether to print who takes part and what came out.

    Returns:
        The summary, which ``folder/summary.json`` holds.
    """
    settings: Any = OmegaConf.to_container(config, resolve=True)
    version = report.version()  # now: a checkout may change while the run trains
    module, data, record = make_module(config, reference), make_data(config), Record(folder)
    checkpoint = RoundCheckpoint(folder / "checkpoints" / "last.ckpt", config.checkpoint_every)
    shown = [Participants() if describe else None, RoundBar() if config.trainer.enable_progress_bar else None]
    trainer = make_trainer(config, folder, [record, GracefulStop(), checkpoint, *shown])
    check_together(module, data, trainer)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(settings)))
    add_loggers(trainer, config)
    for logger in trainer.loggers:
        # A sweep's agent locks its parameters' names: aggregator stays "boba", and its settings would be lost.
        logger.log_hyperparams(settings | ({"settings": settings} if "WANDB_SWEEP_ID" in os.environ else {}))

    trainer.fit(module, datamodule=data, ckpt_path=config.ckpt_path)
    trainer.save_checkpoint(checkpoint.path)
    if not module.diverged:
        trainer.test(module, datamodule=data, verbose=False)
    unfinished = trainer.global_step < config.trainer.max_steps
    status = "diverged" if module.diverged else "interrupted" if unfinished else "completed"
    summary = report.summarise(module, record, status, version)
    report.write(module, record, summary, folder, default_settings())
    if describe:
        print(report.results(summary, folder), flush=True)
    for logger in trainer.loggers:
        final = {name: summary[name] for name in ("accuracy", "mrd") if summary[name] is not None}
        final |= {f"attack/{name}": value for name, value in (summary.get("attack") or {}).items()}
        logger.log_metrics({f"final/{name}": value for name, value in final.items()})
        finish = getattr(getattr(logger, "experiment", None), "finish", None)
        if finish is not None:
            finish()
    return summary
