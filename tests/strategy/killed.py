"""A run over two processes of which the second is killed in round 5: ``python -m tests.strategy.killed FOLDER``."""

import os
import signal
import sys

import lightning_fl  # noqa: F401  (first: makes torchvision importable beside a CPU-only torch)

# isort: split

from omegaconf import OmegaConf

from lightning_fl.contract import conf
from lightning_fl.data.synthetic import Synthetic
from lightning_fl.run.command import carry_out
from lightning_fl.run.explain import explained

SMALL = [
    "method=lfrpg",
    "adversary=label_flip",
    "data=synthetic",
    "data.features=6",
    "data.n_train=240",
    "data.n_test=30",
    "data.classes=3",
    "model.in_features=6",
    "model.hidden=[5]",
    "model.n_classes=3",
    "partition=iid",
    "federation.n_clients=10",
    "federation.n_byzantine=2",
    "federation.byzantine=replacement",
    "federation.participation=0.7",
    "client.slots=2",
    "trainer.enable_progress_bar=false",
    "trainer.accelerator=cpu",
    "trainer.val_check_interval=2",
    "trainer.max_steps=8",
    "checkpoint_every=2",
    "logger=none",
    "run_name=test",
]


class Deadly(Synthetic):
    """Kills the second process in round 5."""

    def round(self, index):
        if index == 4 and self.trainer.world_size > 1 and self.trainer.global_rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().round(index)


def settings(folder, **more):
    """Of the run."""
    config = OmegaConf.create(OmegaConf.to_container(conf.compose(*SMALL)))
    config.run_dir, config.data._target_ = str(folder), "tests.strategy.killed.Deadly"
    for key, value in more.items():
        OmegaConf.update(config, key.replace("__", "."), value)
    return config


if __name__ == "__main__":
    with explained():
        carry_out(settings(sys.argv[1], trainer__devices=2))
