import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from lightning_fl.contract import world
from lightning_fl.run.config import CONF


def test_every_row_is_0():
    attack = instantiate(OmegaConf.load(CONF / "adversary" / "zero.yaml"))
    assert torch.equal(attack.attack(world.updates(), 3, world.context()), torch.zeros(3, world.D))
