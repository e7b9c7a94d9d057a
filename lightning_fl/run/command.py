"""Carry out one run from its settings to its summary, as a command does."""

from pathlib import Path

from omegaconf import DictConfig

from lightning_fl.callback.graceful_stop import GracefulStop
from lightning_fl.network.threads import settle_threads
from lightning_fl.run.check import check
from lightning_fl.run.fit import silence
from lightning_fl.run.reference import reference_recall
from lightning_fl.run.train import end_if_stopped, train


def carry_out(config: DictConfig, others: bool = False) -> None:
    """Check the settings, train the reference if one is asked for, and the run.

    Args:
        config: What ``conf/train.yaml`` composes.
        others: Whether other runs of ``-m`` come after this one.

    Raises:
        KeyboardInterrupt: If the run, or what comes after it, was stopped after one of its rounds, with everything
            saved; says by what.
    """
    chosen = settle_threads()
    if chosen:
        print(chosen, flush=True)
    check(config)
    with silence():
        recall, stop = reference_recall(config), GracefulStop()
        summary = train(config, Path(config.run_dir), recall, stop=stop)
    if others or summary["status"] == "interrupted":
        end_if_stopped(summary, stop)
