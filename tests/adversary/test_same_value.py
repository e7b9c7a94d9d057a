import torch

from lightning_fl.adversary.same_value import SameValue, same_value
from lightning_fl.contract import world


def test_every_coordinate_is_the_value():
    assert same_value(torch.zeros(3, 2), 2).tolist() == [[1.0, 1.0]] * 2
    assert SameValue(-0.5).attack(world.updates(), 3, world.context()).tolist() == [[-0.5] * world.D] * 3
