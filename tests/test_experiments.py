"""Every experiment composes into parts that fit each other, says how to run it, and trains."""

import numpy as np
import pytest
import torch
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
NARROW = "model.widths=[16,16,16,16]"
DEEP = {
    "backfed_cifar10": ["adversary.from_round=1", "federation.participation=4", "model=resnet20", "model.blocks=1"],
    "byzsgdm_cifar10": [],
    "ctma_cifar10": [NARROW],
    "flpoison_cifar10": [NARROW],
    "raga_cifar100_vgg16": ["model=resnet20", "model.n_classes=100", "model.blocks=1"],
    "lora_text": ["model.width=8", "model.layers=1", "model.heads=2"],
}


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


@pytest.mark.parametrize(
    ("name", "clients", "f", "rounds", "rates", "server_samples", "local"),
    [
        ("boba_mnist", (100, 15), 16, 200, (0.1, 0.1 * 0.95**10), 20, (1, None)),
        ("boba_cifar10", (100, 15), 16, 2000, (0.2, 0.2 * 0.8**10), 20, (1, None)),
        ("boba_ag_news", (160, 54), 60, 200, (1.0, 0.95**10), 30, (1, None)),
        ("boba_ag_news_ablation", (16, 2), 2, 200, (1.0, 0.95**10), 30, (1, None)),
        ("raga_mnist_lenet", (40, 10), 10, 500, (0.54772, 0.05970), None, (3, 32)),
        ("raga_mnist_mlp", (40, 10), 10, 500, (0.54772, 0.05970), None, (3, 32)),
        ("raga_cifar10", (40, 10), 10, 500, (0.54772, 0.05970), None, (3, 32)),
        ("raga_cifar100_vgg16", (40, 10), 10, 100, (0.0039801, 0.0028284), None, (1, 32)),
        ("fed_nga_mnist_lenet", (80, 20), 20, 1000, (0.02, 0.02), None, (1, 512)),
        ("fed_nga_mnist_mlp", (80, 20), 20, 1000, (0.02, 0.02), None, (1, 512)),
    ],
)
def test_its_settings_are_the_papers(name, clients, f, rounds, rates, server_samples, local):
    """Honest and Byzantine clients; rates of the first and the last round; samples per class; local steps and batch.

    Fed-NGA's 10,000 rounds are cut to 1,000.
    """
    config = conf.compose(f"experiment={name}", "run_dir=unused", "run_name=unused")
    federation = instantiate(config.federation)
    assert (len(federation.honest_ids), federation.n_byzantine) == clients
    assert (config.f, config.trainer.max_steps) == (f, rounds)
    assert (config.client.get("steps", 1), config.client.batch_size) == local
    if server_samples is not None:
        assert config.data.server_samples == server_samples
    optimizer = instantiate(config.server)([torch.nn.Parameter(torch.zeros(1))])
    schedule = instantiate(config.schedule, _convert_="all")(optimizer) if config.schedule else None
    found = []
    for _ in range(rounds):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if schedule is not None:
            schedule.step()
    assert (found[0], found[-1]) == pytest.approx(rates, rel=1e-4)


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
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # of transformers, by peft
def test_it_trains(name, stand_ins, cifar100_files, tmp_path):
    if name == "lora_text":
        pytest.importorskip("peft")
        pytest.importorskip("transformers")
    common = [f"run_dir={tmp_path}", "run_name=test", "logger=[]", "trainer.accelerator=cpu"]
    quick = ["trainer.enable_progress_bar=false", f"data_dir={cifar100_files}"]
    choice = conf.compose(f"experiment={name}", "run_dir=unused", "run_name=unused").data["_target_"].split(".")[-2]
    rounds = 2
    if name in DEEP:  # as wide as their papers', they take minutes
        quick = [*quick, "federation.n_clients=5", "federation.n_byzantine=1", "f=1", *DEEP[name]]
    quick += [f"trainer.max_steps={rounds}", f"trainer.val_check_interval={rounds}"]
    config = conf.compose(f"experiment={name}", *common, *quick, *stand_ins[choice])
    config = OmegaConf.create(OmegaConf.to_container(config))
    for key, most in {"client.batch_size": 16, "data.server_samples": 20}.items():
        if OmegaConf.select(config, key) is not None:
            OmegaConf.update(config, key, min(most, OmegaConf.select(config, key)))
    with training.quiet():
        summary = train(config, tmp_path, describe=False)
    assert (summary["status"], summary["rounds"]) == ("completed", rounds)
