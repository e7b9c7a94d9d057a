"""What config.yaml holds of a run in plain Python."""

from functools import partial

import numpy as np
import torch
from torch.optim import SGD

import lightning_fl as fl
from lightning_fl.contract import world
from lightning_fl.run.differences import named
from lightning_fl.run.identity import comparable


class Own(fl.aggregator.Krum):
    def __init__(self, f, table, often=()):
        super().__init__(f)
        self.table, self.often = table, often


def trained(rule=None, **settings):
    found, test = world.samples(6), world.samples(3, 1)
    data = fl.TensorData((found.inputs, found.targets), (test.inputs, test.targets), n_clients=6, n_byzantine=1)
    return fl.train(world.model(), data, rule, fl.adversary.Ipm(2.0), rounds=1, **settings)


def test_parts_are_spelled_as_the_command_line_spells_them():
    rule = fl.aggregator.Nnm(fl.aggregator.Krum(f=1), f=1)
    optimizer = partial(SGD, lr=0.5, momentum=np.float32(0.25))
    config = trained(rule, optimizer=optimizer, seed=3, accelerator="cpu").config
    assert config["seed"] == config["federation"]["seed"] == config["data"]["partition_seed"] == 3
    krum = {"_target_": "lightning_fl.aggregator.krum.Krum", "f": 1, "neighbours": "n-f-2"}
    assert config["aggregator"] == {"_target_": "lightning_fl.aggregator.nnm.Nnm", "rule": krum, "f": 1}
    window = {"from_round": 0, "to_round": None, "every": 1}
    assert config["adversary"] == {"_target_": "lightning_fl.adversary.ipm.Ipm", "factor": 2.0} | window
    assert config["server"] == {"_target_": "torch.optim.SGD", "_partial_": True, "lr": 0.5, "momentum": 0.25}
    assert config["client"]["_target_"] == "lightning_fl.client.gradient.Gradient"
    assert (config["federation"]["n_clients"], config["federation"]["n_byzantine"]) == (6, 1)
    assert config["trainer"]["max_steps"] == 1
    assert {type(config["seed"]), type(config["server"]["momentum"])} == {int, float}


def test_what_has_no_spelling_is_left_out():
    rule = Own(1, torch.ones(3), often=[1] * 101)
    config = trained(rule, optimizer=lambda parameters, lr: SGD(parameters, lr), lr=0.1).config
    assert config["aggregator"] == {"_target_": f"{__name__}.Own", "f": 1}
    assert named(config["aggregator"]) == "own"
    assert config["server"]["lr"] == 0.1
    (plain,) = comparable([trained().config])
    assert plain["aggregator"] == {}  # plain averaging
