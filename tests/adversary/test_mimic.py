import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.adversary.mimic import Mimic, mimic
from tests import world

HONEST = torch.tensor([[1.0, 0.0], [3.0, 2.0]])


def test_copies_its_target():
    assert mimic(HONEST, 2, 1).tolist() == [[3.0, 2.0]] * 2
    assert mimic(HONEST, 1).tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize("target", [-1, 2])
def test_refuses_a_target_that_is_not_there(target):
    with pytest.raises(SettingError, match=rf"target in \[0, 2\), got {target}"):
        mimic(HONEST, 1, target)


def test_the_class_refuses_a_negative_target():
    with pytest.raises(SettingError, match="target of at least 0, got -1"):
        Mimic(-1)


def test_the_class_passes_its_target():
    updates = world.updates()
    assert torch.equal(Mimic(4).attack(updates, 2, world.context()), updates.rows[[4, 4]])
