"""Every experiment composes into parts that fit each other, and says how to run it."""

import pytest
from hydra.utils import instantiate

from lightning_fl import Adversary, Aggregator, Client, FederatedDataModule, Partition
from tests import conf

EXPERIMENTS = conf.names("experiment")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_its_parts_fit(name):
    config = conf.compose(f"experiment={name}", "run_dir=unused", "run_name=unused")

    def make(key, **more):
        return instantiate(config[key], _convert_="all", **more) if config.get(key) else None

    federation, aggregator, adversary = make("federation"), make("aggregator"), make("adversary")
    assert isinstance(aggregator, Aggregator)
    assert isinstance(make("client"), Client)
    assert isinstance(make("partition"), Partition)
    assert isinstance(make("data", partition=make("partition"), federation=federation), FederatedDataModule)
    assert isinstance(adversary, Adversary) == (federation.n_byzantine > 0)
    aggregator.check(federation.n, 10)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_its_head_says_how_to_run_it(name):
    text = (conf.CONF / "experiment" / f"{name}.yaml").read_text()
    assert text.startswith("# @package _global_\n# ")
    assert f"python scripts/train.py experiment={name}" in text
