"""Convolutions 5 x 5 with pooling, then fully connected layers."""

import pytest
import torch
import torch.nn.functional as F

from lightning_fl.model.lenet import Lenet


@pytest.mark.parametrize("settings", [(1, 28, [6, 16], [120, 60], 10), (3, 32, [64, 64], [384, 192], 10)])
def test_it_is_the_papers_net(settings, draw):
    model = Lenet(*settings)
    a, a0, b, b0, c, c0, d, d0, e, e0 = model.parameters()
    x = torch.randn(5, settings[0], settings[1], settings[1], generator=draw)
    y = F.max_pool2d(F.conv2d(x, a, a0).clamp(min=0), 2)
    y = F.max_pool2d(F.conv2d(y, b, b0).clamp(min=0), 2).reshape(5, -1)
    y = (y @ c.T + c0).clamp(min=0)
    y = (y @ d.T + d0).clamp(min=0)
    torch.testing.assert_close(model(x), y @ e.T + e0)
    assert (model(x) < 0).any()


def test_smallest_image():
    assert Lenet(1, 16, (6, 16), (9,), 4)(torch.zeros(2, 1, 16, 16)).shape == (2, 4)
