"""Settings that no run can have are refused where a part is made, in one line that names them."""

import math

import numpy as np
import pytest
import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import OmegaConf

from lightning_fl import SettingError
from lightning_fl.contract import conf, world
from lightning_fl.errors import check_choice, check_finite, check_instance, check_whole
from lightning_fl.run.assemble import make_model

OFFLINE = ["quadratic", "synthetic"]
PARTS = [
    (group, name)
    for group in ("adversary", "aggregator", "client", "data", "loss", "model", "partition", "schedule", "server")
    for name in (OFFLINE if group == "data" else conf.names(group))
]
ENDLESS = {  # inf has a meaning there
    *(("partition", "step", "alpha"), ("client", "saga", "max_memory_gb")),
    *(("aggregator", "clipped_clustering", "max_radius"), ("aggregator", "signguard", "upper")),
    ("adversary", "non_finite", "kind"),
}
TORCH = ("lr", "momentum", "weight_decay")  # the optimizer's own; the command line checks them


def numbers(config, path=""):
    """Every setting of a part that is a number with a point."""
    for key, value in config.items():
        if isinstance(value, dict):
            yield from numbers(value, f"{path}{key}.")
        elif isinstance(value, float) and key not in TORCH:
            yield f"{path}{key}"


def make(group, config):
    """Make a part as training does, and check a rule for sixty clients."""
    more = {}
    if group == "model":
        make_model(config)
        return
    if group == "data":
        more = {"partition": instantiate(config.partition), "federation": instantiate(config.federation)}
    part = instantiate(config[group], _convert_="all", **more)
    if group == "aggregator":
        part.check(60, 3)
    if group == "server":
        part(world.model().parameters())
    if group == "schedule" and part is not None:
        part(torch.optim.SGD(world.model().parameters(), lr=0.1))


@pytest.mark.parametrize(("group", "name"), PARTS)
def test_numbers_are_finite(group, name):
    composed = conf.compose(f"{group}={name}", "data_dir=d")
    for key in numbers(OmegaConf.to_container(composed.get(group) or OmegaConf.create())):
        for value in (math.nan, math.inf):
            if (group, name, key) in ENDLESS and (value == math.inf or name == "non_finite"):
                continue
            config = composed.copy()
            OmegaConf.update(config, f"{group}.{key}", value)
            with pytest.raises((SettingError, InstantiationException)) as caught:
                make(group, config)
            error = caught.value if isinstance(caught.value, SettingError) else caught.value.__cause__
            assert isinstance(error, SettingError)
            assert "\n" not in str(error)
            assert key.rsplit(".", 1)[-1] in str(error)


def test_what_is_checked_says_whose_it_is():
    check_finite("ipm's factor", -1e300)
    check_choice("upload", "difference", ("difference", "tail_average"))
    check_whole("rounds", np.int64(2), 2)
    for value in (1, 2.0, "2", None):
        with pytest.raises(SettingError, match=f"rounds must be a whole number of at least 2, got {value!r}"):
            check_whole("rounds", value, 2)
    check_instance("client", 3, int, "1")
    for value, given in [
        (OSError, r"the class OSError; write OSError\(\.\.\.\)"),
        ("x", "'x'"),
        (3, "3"),
        ([3], "list"),
    ]:
        with pytest.raises(SettingError, match=f"it must be an ArithmeticError such as this, got {given}"):
            check_instance("it", value, ArithmeticError, "this")
    for value in (math.nan, -math.inf):
        with pytest.raises(SettingError, match=f"ipm's factor must be a finite number, got {value}"):
            check_finite("ipm's factor", value)
    with pytest.raises(SettingError, match="upload must be one of difference, tail_average, got 3"):
        check_choice("upload", 3, ("difference", "tail_average"))
