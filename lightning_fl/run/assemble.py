"""Model, module, data and trainer of a run, made from its settings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch import nn

from lightning_fl import seeding
from lightning_fl.data.base import FederatedDataModule
from lightning_fl.module import FederatedModule


def make(config: DictConfig | None, **more: Any) -> Any:
    """Instantiate a part of the configuration; None where nothing is chosen."""
    return instantiate(config, _convert_="all", **more) if config else None


def make_data(config: DictConfig) -> FederatedDataModule:
    """Instantiate data, partition and federation."""
    data: FederatedDataModule = make(config.data, partition=make(config.partition), federation=make(config.federation))
    return data


def make_model(config: DictConfig) -> nn.Module:
    """Instantiate the model, its parameters drawn from the run's seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seeding.derive_seed(config.seed, "model"))
        model: nn.Module = make(config.model)
    return model


def make_module(config: DictConfig, reference: Sequence[float] | None = None) -> FederatedModule:
    """Instantiate model, client, server and schedule.

    Args:
        config: What ``conf/train.yaml`` composes.
        reference: Recall of each class by plain averaging without attack, for max-recall-drop.
    """
    return FederatedModule(
        make_model(config), make(config.client), make(config.server), make(config.get("schedule")), reference
    )


def make_trainer(config: DictConfig, folder: Path, callbacks: Sequence[pl.Callback | None], **more: Any) -> pl.Trainer:
    """Instantiate the trainer with rule, attack and loggers.

    Args:
        config: What ``conf/train.yaml`` composes.
        folder: Where Lightning's own files go.
        callbacks: Further ones, after rule and attack; None is left out.
        more: Settings of the trainer that replace the configuration's.
    """
    if config.trainer.accelerator == "auto" and torch.backends.mps.is_available():
        more = {"accelerator": "cpu"} | more  # MPS has no float64
    everyone = [make(config.get("aggregator")), make(config.get("adversary")), *callbacks]
    trainer: pl.Trainer = make(
        config.trainer,
        callbacks=[callback for callback in everyone if callback is not None],
        logger=make(config.get("logger")) or False,
        default_root_dir=str(folder),
        **more,
    )
    return trainer
