"""Carry out one run from its settings to its summary, as a command does."""

from pathlib import Path

from omegaconf import DictConfig

from lightning_fl._threads import settle_threads
from lightning_fl.run.check import check
from lightning_fl.run.memory import silence
from lightning_fl.run.reference import reference_recall
from lightning_fl.run.train import train


def carry_out(config: DictConfig) -> None:
    """Check the settings, train the reference if one is asked for, and the run.

    Args:
        config: What ``conf/train.yaml`` composes.

    Raises:
        KeyboardInterrupt: If the run was stopped after one of its rounds, with everything saved; says by what.
    """
    chosen = settle_threads()
    if chosen:
        print(chosen, flush=True)
    check(config)
    with silence():
        summary = train(config, Path(config.run_dir), reference_recall(config))
    if summary["status"] == "interrupted":
        raise KeyboardInterrupt(summary["reason"])  # ends the other runs of -m, too
