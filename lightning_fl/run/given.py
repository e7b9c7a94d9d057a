"""The settings of a run in plain Python, as far as they have names: what ``config.yaml`` of a command's run holds."""

from contextlib import suppress
from functools import partial
from inspect import isfunction
from numbers import Integral, Real
from typing import Any

import pytorch_lightning as pl
from torch import nn, optim

from lightning_fl.arguments import arguments
from lightning_fl.client.base import Client
from lightning_fl.data.base import FederatedDataModule
from lightning_fl.federation import Federation
from lightning_fl.module import FederatedModule
from lightning_fl.partition.base import Partition
from lightning_fl.run.identity import Config

_PARTS = (pl.Callback, Client, Partition, Federation, FederatedDataModule, nn.Module)
_LONGEST = 100  # longer lists are data


def config_of(
    module: FederatedModule, data: FederatedDataModule, seed: int, twin: int | None, trainer: Config, **parts: Any
) -> Config:
    """Write down what a run was given; what has no spelling, such as samples and the code of functions, is left out.

    Args:
        module: What is trained.
        data: Who holds what.
        seed: The run's.
        twin: Its number, of a twin.
        trainer: Settings of Lightning's trainer.
        parts: Rule, attack, loss, server's optimizer and schedule by the names of their groups; None: not there.
    """
    parts = {name: part for name, part in parts.items() if part is not None}
    parts |= {"client": module.client, "partition": data.partition, "federation": data.federation}
    config = {"seed": int(seed), "twin": twin, **_known(parts)}
    config["data"] = {name: value for name, value in _written(data).items() if name not in parts}
    config["model"] = _written(module.model) | {"layers": " ".join(str(module.model).split())}
    kept = {name: value for name, value in trainer.items() if name not in ("logger", "default_root_dir")}
    return config | {"trainer": {"_target_": "pytorch_lightning.Trainer"} | _known(kept)}


def _written(value: Any) -> Any:
    """Spell a value, or a part by its class and arguments; Ellipsis: it has no spelling."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, list | tuple):
        found = [_written(inner) for inner in value[: _LONGEST + 1]]
        return ... if len(found) > _LONGEST or ... in found else found
    if isinstance(value, partial):
        return {"_target_": _path(value.func), "_partial_": True} | _known(value.keywords)
    if isinstance(value, type) or isfunction(value):
        return {"_target_": _path(value), "_partial_": True}
    if isinstance(value, _PARTS):
        values = {}
        for name in arguments(type(value)):
            with suppress(Exception):  # not kept, or somebody's property
                values[name] = getattr(value, name)
        return {"_target_": _path(type(value))} | _known(values)
    return ...


def _known(values: Config) -> Config:
    written = {name: _written(value) for name, value in values.items()}
    return {name: value for name, value in written.items() if value is not ...}


def _path(thing: Any) -> str:
    name = getattr(thing, "__qualname__", type(thing).__name__)
    return f"torch.optim.{name}" if getattr(optim, name, None) is thing else f"{thing.__module__}.{name}"
