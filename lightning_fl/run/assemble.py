"""Build the model, module, data and trainer of a run from its settings."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.errors import InstantiationException
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf, open_dict
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.strategies import DDPStrategy
from torch import nn

from lightning_fl import seeding
from lightning_fl.checks import in_float64, refuse_hidden_state
from lightning_fl.data.base import FederatedDataModule
from lightning_fl.errors import DataError, MissingError, SettingError, concerning
from lightning_fl.module import FederatedModule
from lightning_fl.network.parameters import nudge
from lightning_fl.network.statistics import thaw
from lightning_fl.run.kinds import check_kinds
from lightning_fl.run.start import take_over
from lightning_fl.strategy.client_parallel import ClientParallel
from lightning_fl.text import said


def make(config: DictConfig | None, **more: Any) -> Any:
    """Instantiate a part of the configuration; None if nothing is chosen.

    Raises:
        SettingError: If it cannot be made, or is of another kind, before anything is called; the error names the part.
    """
    if not config:
        return None
    part = str(config._get_full_key(None))
    given: Any = OmegaConf.to_container(config, resolve=True)
    check_kinds(given, part)
    try:
        return instantiate(config, _convert_="all", **more)
    except InstantiationException as error:
        cause: BaseException = error
        while isinstance(cause, InstantiationException) and cause.__cause__ is not None:
            cause = cause.__cause__
        if isinstance(cause, DataError):
            raise cause from error
        with concerning(part):
            if isinstance(cause, SettingError):
                raise cause from error
            raise SettingError(said(cause, named=True)) from error


def knowledge(path: Path) -> str | None:
    """Say what the attack of a file of conf/adversary goes by at most (`Adversary.knows`); None if it is nobody's."""
    config = OmegaConf.create({"adversary": OmegaConf.load(path)}).adversary
    if not config or "_target_" not in config:
        return None
    # One that reads a file of the user's cannot be made here.
    attack: Any = get_class(config._target_) if "path" in config else instantiate(config)
    return str(attack.knows)


def make_data(config: DictConfig) -> FederatedDataModule:
    """Instantiate data, partition and federation."""
    data: FederatedDataModule = make(config.data, partition=make(config.partition), federation=make(config.federation))
    return data


def make_model(config: DictConfig) -> nn.Module:
    """Instantiate the model, its parameters drawn by the seed or those of ``model.start``; see `make_seeded`."""
    settings = config.copy()
    with open_dict(settings):
        start = settings.model.pop("start", None)
        settings.model.pop("buffers", None)

    def made() -> nn.Module:
        model: nn.Module = make(settings.model)
        if start is not None:
            take_over(model, start)
        return model

    return make_seeded(made, config.seed, config.get("twin"), config.trainer.get("precision"))


def make_seeded(
    model: nn.Module | Callable[[], nn.Module], seed: int, twin: int | None = None, precision: object = None
) -> nn.Module:
    """Make a model, its parameters drawn from the run's seed; a module is copied.

    One in evaluation mode, as of `load_model`, goes on in training mode.

    Args:
        model: The model, or what makes it.
        seed: The run's.
        twin: Number of a twin, whose parameters are moved by one unit in their last place.  None: not a twin.
        precision: The trainer's; the last place of a twin's parameters is that in which the round computes.

    Raises:
        SettingError: If what is made is no module.
    """
    if isinstance(model, nn.Module):
        refuse_hidden_state(model, statistics=True)  # a copy would hide some of the rest
        made = deepcopy(model)
        made = made if made.training else thaw(made)
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seeding.derive_seed(seed, "model"))
            made = model() if callable(model) else model
    if not isinstance(made, nn.Module):
        raise SettingError(f"a model is a module, or a class or function that makes one, got {type(made).__name__}.")
    if twin is not None:
        if in_float64(precision):
            made.double()
        nudge(made, seeding.generator(seed, "twin", twin))
    return made


def make_module(config: DictConfig, reference: Sequence[float | None] | None = None) -> FederatedModule:
    """Instantiate model, loss, client, server and schedule.

    Args:
        config: What ``conf/train.yaml`` composes.
        reference: Recall of each class by plain averaging without attack, for max-recall-drop.
    """
    return FederatedModule(
        make_model(config),
        make(config.client),
        make(config.server),
        make(config.get("schedule")),
        reference,
        config.get("updates_dir"),
        make(config.get("loss")),
        config.model.get("buffers") or "refuse",
    )


def make_trainer(config: DictConfig, folder: Path, callbacks: Sequence[pl.Callback | None], **more: Any) -> pl.Trainer:
    """Instantiate the trainer with rule, attack and chosen callbacks, without loggers.

    Args:
        config: What ``conf/train.yaml`` composes.
        folder: Where Lightning's own files go.
        callbacks: Further callbacks, after rule and attack; None is skipped.
        more: Settings of the trainer that override the configuration's.

    Raises:
        MissingError: If a GPU is asked for where torch finds none.
    """
    check_accelerator(config.trainer.accelerator, "trainer.accelerator")
    if config.trainer.accelerator == "auto" and torch.backends.mps.is_available():
        more = {"accelerator": "cpu"} | more  # MPS has no float64
    further = list((config.get("callbacks") or {}).values())
    listed = config.trainer.get("callbacks") or []
    further += [listed] if "_target_" in listed else list(listed)
    chosen = [make(node) for node in further if node]
    if more.get("enable_checkpointing") is False:
        chosen = [callback for callback in chosen if not isinstance(callback, Checkpoint)]
    everyone = [make(config.get("aggregator")), make(config.get("adversary")), *callbacks, *chosen]
    given = {"callbacks": [callback for callback in everyone if callback is not None], "logger": False}
    ready = partial(make, config.trainer, default_root_dir=str(folder), **(given | more))
    return over_processes(ready, config.trainer.get("strategy"))


def check_accelerator(chosen: object, name: str) -> None:
    """Check that there is a GPU where one is asked for.

    Raises:
        MissingError: If torch finds none.
    """
    if chosen in ("gpu", "cuda") and not (torch.cuda.is_available() or torch.backends.mps.is_available()):
        raise MissingError(
            f"{name}={chosen} needs a GPU that torch finds, got none; leave it at auto, which takes the CPU then."
        )


def over_processes(make_trainer: Callable[..., pl.Trainer], chosen: object) -> pl.Trainer:
    """Make a trainer, with `ClientParallel` where it has several processes.

    Args:
        make_trainer: Makes it, from further settings.
        chosen: Its strategy as far as it is set; one with settings of its own is left as it is.
    """
    trainer = make_trainer()
    if trainer.world_size > 1 and type(trainer.strategy) is DDPStrategy and isinstance(chosen, str | None):
        trainer = make_trainer(strategy=ClientParallel())
    return trainer


def check_together(module: FederatedModule, data: FederatedDataModule, trainer: pl.Trainer) -> None:
    """Load the data and check that all parts fit together; nothing is written except downloads.

    Raises:
        SettingError: If they do not.
        DataError: If the data cannot be read.
    """
    with concerning("data"):
        data.prepare_data()
        data.setup()
    module.check(trainer, data)
