"""A white patch in the corner; what it shares with other backdoors is in test_backdoor."""

import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.adversary.badnets import Badnets


def test_the_patch_by_hand():
    assert Badnets(size=2).patch(3, 4).int().tolist() == [[0, 0, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]
    assert Badnets(size=2).patch(2, 2).all()
    with pytest.raises(SettingError, match=r"3 x 3 pixels does not fit into images of 5 x 2; lower size"):
        Badnets(size=3).patch(5, 2)


def test_everybody_has_the_same_patch():
    images, draw = torch.zeros(2, 3, 6, 6), torch.Generator()
    attack = Badnets(size=2)
    marked = [attack.mark(images, client, draw) for client in (None, 0, 3)]
    assert all(torch.equal(marked[0], other) for other in marked)
    assert (marked[0].sum((1, 2, 3)) == 12).all()  # 2 x 2 pixels of 3 channels
    assert not images.any()
