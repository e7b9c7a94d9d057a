"""Inputs that a model takes, whoever wrote it."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from itertools import product
from typing import Any

import torch
from hydra.utils import instantiate
from torch import Tensor, nn

from lightning_fl import DataError, Federation, SettingError
from lightning_fl.contract import conf
from lightning_fl.partition.iid import Iid
from lightning_fl.run.config import own_folder


def found_inputs(model: nn.Module, settings: Mapping[str, Any], n: int, draw: torch.Generator) -> tuple[Tensor, int]:
    """Find inputs that a model takes.

    Args:
        model: If its class declares ``input_shape``, that of one sample, its inputs are drawn in that shape.
        settings: Its own: those that name a shape come next (vocabulary; in_features; in_channels, side), then samples
            of the project's data sets that load without being fetched, then pictures in the usual sizes.
        n: How many inputs.
        draw: What they are drawn by.

    Returns:
        Inputs, and the number of classes.

    Raises:
        SettingError: If it takes none of these.
    """
    trial = deepcopy(model).eval()
    for inputs in _candidates(getattr(model, "input_shape", None), settings, n, draw):
        with suppress(Exception), torch.no_grad():  # whatever it says of what it does not take
            outputs = trial(inputs)
            if isinstance(outputs, Tensor) and outputs.ndim == 2 and len(outputs) == n:
                return inputs, outputs.shape[1]
    raise SettingError(
        f"the contract needs inputs that {type(model).__name__} takes, found none; declare the shape of one sample on "
        f"its class, such as input_shape = (3, 32, 32)."
    )


def _candidates(
    declared: tuple[int, ...] | None, settings: Mapping[str, Any], n: int, draw: torch.Generator
) -> Iterator[Tensor]:
    if declared is not None:
        yield torch.randn(n, *declared, generator=draw)
        return
    if "vocabulary" in settings:  # tokens from 1, filled up with 0
        inputs = torch.randint(1, settings["vocabulary"], (n, 70), generator=draw)
        lengths = torch.randint(1, 71, (n, 1), generator=draw)
        inputs[torch.arange(70) >= lengths] = 0
        yield inputs
    if "in_features" in settings:
        yield torch.randn(n, settings["in_features"], generator=draw)
    named = {"in_channels", "side"} & settings.keys()
    if not named:
        yield from _of_own_data(n)
    sides = [settings["side"]] if "side" in named else [32, 28, 64, 224]
    channels = [settings["in_channels"]] if "in_channels" in named else [3, 1]
    for c, side in product(channels, sides):
        yield torch.randn(n, c, side, side, generator=draw)


def _of_own_data(n: int) -> Iterator[Tensor]:
    for name in conf.names("data") if own_folder() else []:
        config, everybody = conf.compose(f"data={name}").data, Federation(4, 0, "supplement", "uniform")
        with suppress(DataError, SettingError, OSError):  # it would have to be fetched first
            train, _ = instantiate(config, partition=Iid(), federation=everybody, _convert_="all").load()
            yield train.gather(torch.arange(n))[0]
