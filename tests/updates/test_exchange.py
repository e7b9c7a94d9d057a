"""Rounds over two processes against rounds in one: every rule, attack, client and method of conf."""

import json
import math
import os
import socket
from functools import cache
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from lightning_fl.contract import conf
from lightning_fl.run.config import CONF
from tests import processes, training
from tests.processes import CLASSES, SIDE
from tests.starting import Started

ROOT = Path(__file__).resolve().parents[2]

BASE = [
    "data=synthetic",
    f"model.in_features={SIDE * SIDE}",
    "model.hidden=[5]",
    f"model.n_classes={CLASSES}",
    "partition=iid",
    "federation.n_clients=23",
    "federation.n_byzantine=4",
    "federation.byzantine=replacement",
    "f=4",
    "trainer.accelerator=cpu",
    "trainer.val_check_interval=2",
    "trainer.max_steps=2",
    "logger=none",
    "run_name=test",
    "run_dir=unused",
]
DATA = {"_target_": "tests.processes.Pictures", "server_samples": 4, "seed": 0, "partition_seed": 0}
# Who asks every process for all columns of all updates: as much memory as one process alone needs.
WHOLE = {
    "rule delayed_momentum",
    "rule fldetector",
    "rule foolsgold",
    "rule gas",
    "rule rosdhb",
    "attack adaptive",
    "attack one_coordinate",
    "attack opt_alie",
    "attack opt_ipm",
}
HOSTILE = {"_target_": "tests.processes.Hostile"}
SMALL = {"client.batch_size": 4, "client.steps": 3, "adversary.evaluations": 90, "aggregator.n_groups": 40}


@cache
def composed(*choices):
    return conf.compose(*BASE, *choices)


def settings(*choices, **groups):
    """What ``choices`` compose, with the files of conf for some groups, made small."""
    config = OmegaConf.create(OmegaConf.to_container(composed(*choices)))
    for group, name in groups.items():
        node = OmegaConf.load(CONF / group / f"{name}.yaml") if name else {}
        if "defaults" in node:  # a rule inside a rule
            node = composed(f"{group}={name}")[group]
        OmegaConf.update(config, group, node, merge=False, force_add=True)
    for key, value in SMALL.items():
        if OmegaConf.select(config, key) is not None:
            OmegaConf.update(config, key, value)
    config.update({"data": DATA, "hydra": None})
    return OmegaConf.to_container(config, resolve=True)


def cases(folder):
    """All of them, by name."""
    torch.save(torch.randint(0, 255, (6, 1, SIDE, SIDE), dtype=torch.uint8), folder / "rare.pt")
    found = {}
    for name in conf.names("aggregator"):
        found[f"rule {name}"] = settings(aggregator=name) | {"adversary": HOSTILE}
    for name in set(conf.names("adversary")) - {"none"}:
        found[f"attack {name}"] = settings(aggregator="trimmed_mean", adversary=name)
    found["attack edge_case"]["adversary"] |= {"path": str(folder / "rare.pt"), "radius": 0.01}
    found["attack label_flip_pair"]["adversary"]["target"] = 1
    for name in conf.names("client"):
        found[f"client {name}"] = settings(client=name, adversary="label_flip")
        found[f"client {name}"]["federation"]["participation"] = 0.7
    found["rows in files"] = settings(aggregator="krum", adversary="lie") | {"updates_dir": str(folder)}
    for precision in ("64-true", "bf16-mixed"):
        found[f"in {precision}"] = settings(f"trainer.precision={precision}", aggregator="krum", adversary="lie")
    found["rate of uploads"] = settings(client="raga", adversary="gaussian")
    found["rate of uploads"]["client"]["learning_rate"] = 0.01
    small = {"widths": [4], "blocks": 1, "norm": "batch", "in_channels": 1, "n_classes": processes.CLASSES}
    for buffers in ("batch", "recompute", "rule"):
        name = f"statistics {buffers}"
        found[name] = settings(model="resnet20", aggregator="trimmed_mean", adversary="label_flip")
        found[name]["model"] |= small | {"buffers": buffers}
    for name in conf.names("method"):
        found[f"method {name}"] = settings(f"method={name}", adversary="gaussian_updates")
    return found


def launch(folder, n_processes):
    """Start one process, or several as a launcher does that Lightning finds; gives them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    ranks = [place | {"LOCAL_RANK": str(rank)} for rank in range(n_processes)] if n_processes > 1 else [{}]
    words = ["-m", "tests.processes", folder, n_processes]
    return [Started(*words, cwd=ROOT, environment=os.environ | {"OMP_NUM_THREADS": "1"} | rank) for rank in ranks]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What one process found, and two."""
    folder = tmp_path_factory.mktemp("processes")
    every = cases(folder)
    for name in ("client momentum", "client saga", "method lfrpg"):
        path = folder / name.replace(" ", "_")
        path.mkdir()
        half = every[name] | {"trainer": every[name]["trainer"] | {"max_steps": 1, "val_check_interval": 1}}
        with training.quiet():
            processes.train(half, 1, path)
        every[f"{name} resumed"] = every[name] | {"ckpt_path": str(path / "saved.ckpt")}
    (folder / "cases.json").write_text(json.dumps(every))
    for process in [*launch(folder, 1), *launch(folder, 2)]:
        printed = process.communicate()
        assert process.returncode == 0, printed
    return [torch.load(folder / f"{n}.pt", weights_only=False) for n in (1, 2)]


def unlike(one, two, path=""):
    """Where two results differ by more than rounding."""
    if isinstance(one, dict) and isinstance(two, dict):
        keys = [key for key in one.keys() | two.keys() if not str(key).startswith("seconds")]
        return [line for key in keys for line in unlike(one.get(key), two.get(key), f"{path}/{key}")]
    if isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        return [line for i, pair in enumerate(zip(one, two, strict=True)) for line in unlike(*pair, f"{path}/{i}")]
    if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor) and one.shape == two.shape:
        close = torch.isclose(one.double(), two.double(), rtol=1e-3, atol=1e-5, equal_nan=True)
        return [] if close.all() else [f"{path}: {int((~close).sum())} of {close.numel()} numbers"]
    if isinstance(one, float) and isinstance(two, float):
        same = math.isclose(one, two, rel_tol=1e-3, abs_tol=1e-5) or (math.isnan(one) and math.isnan(two))
        return [] if same else [f"{path}: {one} and {two}"]
    return [] if type(one) is type(two) and one == two else [f"{path}: {one} and {two}"]


@pytest.mark.slow
def test_two_processes_find_what_one_finds(trained):
    (one, _), (two, _) = trained
    assert one.keys() == two.keys()
    assert sum("refused" not in found for found in one.values()) > 0.9 * len(one)
    assert {name: lines for name in one if (lines := unlike(one[name], two[name]))} == {}


@pytest.mark.slow
def test_hardly_anybody_asks_for_all_columns(trained):
    _, (found, whole) = trained
    assert len(found) > len(whole)
    assert set(whole) <= WHOLE


@pytest.mark.slow
def test_what_clients_remember_goes_on_in_more_processes(trained):
    (one, _), (two, _) = trained
    for name in [name for name in one if name.endswith(" resumed")]:
        whole = one[name.removesuffix(" resumed")]
        assert whole["client"], name
        for key in ("parameters", "client"):
            assert unlike(whole[key], two[name][key]) == [], name
