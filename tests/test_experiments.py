"""Every experiment composes into parts that fit each other, says how to run it, and trains."""

import numpy as np
import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf
from PIL import Image

from lightning_fl import Adversary, Aggregator, Client, FederatedDataModule, Partition
from lightning_fl.contract import conf
from lightning_fl.data import cifar10, cifar100
from lightning_fl.run.config import CONF
from lightning_fl.run.train import train
from tests import training
from tests.data import making

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
    text = (CONF / "experiment" / f"{name}.yaml").read_text()
    assert text.startswith("# @package _global_\n# ")
    assert f"python scripts/train.py experiment={name}" in text


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory):
    """For each data set the overrides that put the smallest data of its shape in its place."""
    root = tmp_path_factory.mktemp("data")
    draw = np.random.default_rng(0)
    for split, per_class in [("train", 20), ("test", 1)]:
        for name in cifar10.CLASSES:
            (root / "tree" / split / name).mkdir(parents=True)
            for i in range(per_class):
                pixels = draw.integers(0, 256, (32, 32, 3), np.uint8)
                Image.fromarray(pixels).save(root / "tree" / split / name / f"{i}.png")
    topics = ["world war vote", "ball game team", "stock market bank", "chip code space"]
    for name, per_class in [("train.csv", 80), ("test.csv", 2)]:
        lines = [f'"{z + 1}","","{topic} {i}"' for z, topic in enumerate(topics) for i in range(per_class)]
        (root / name).write_text("\n".join(lines) + "\n")
    text = ["data=ag_news", f"data.train_csv={root / 'train.csv'}", f"data.test_csv={root / 'test.csv'}"]
    text += ["data.vocabulary=50", "data.length=8"]
    images = [f"data.tree={root / 'tree'}", f"data.corruption_cache={root / 'corrupted'}"]
    return {
        "mnist": ["data=mnist_5k"],
        "fashion_mnist": ["data=mnist_5k"],
        "usps": ["data=synthetic", "data.features=256", "data.n_train=200", "data.n_test=20"],
        "cifar10": [*images, f"data_dir={root}"],
        "cifar100": [],
        "ag_news": text,
        "newsgroups": text,
    }


@pytest.fixture
def cifar100_files(tmp_path, monkeypatch):
    """CIFAR-100 with twenty training images and one test image a class, in its own format."""

    def batch(copies):
        labels = list(range(100)) * copies
        return making.cifar_batch([[i] * 3072 for i in labels], {"fine_labels": labels, "coarse_labels": labels})

    files = {"train": batch(20), "test": batch(1)}
    monkeypatch.setattr(cifar100, "CHECKSUMS", making.sha256s(files))
    making.write(tmp_path / "cifar-100-python", files)
    return tmp_path


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_it_trains(name, stand_ins, cifar100_files, tmp_path):
    common = [f"run_dir={tmp_path}", "run_name=test", "logger=[]", "trainer.max_steps=2", "trainer.accelerator=cpu"]
    quick = ["trainer.enable_progress_bar=false", "trainer.val_check_interval=2", f"data_dir={cifar100_files}"]
    choice = conf.compose(f"experiment={name}").data["_target_"].split(".")[-2]
    if choice == "cifar100":  # VGG16 has 134 million parameters per client
        quick += ["federation.n_clients=2", "federation.n_byzantine=1", "client.batch_size=1"]
    config = conf.compose(f"experiment={name}", *common, *quick, *stand_ins[choice])
    config = OmegaConf.create(OmegaConf.to_container(config))
    for key, most in {"client.batch_size": 16, "data.server_samples": 20}.items():
        if OmegaConf.select(config, key) is not None:
            OmegaConf.update(config, key, min(most, OmegaConf.select(config, key)))
    with training.quiet():
        summary = train(config, tmp_path, describe=False)
    assert (summary["status"], summary["rounds"]) == ("completed", 2)
