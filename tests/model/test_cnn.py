"""Three convolutions 3 x 3."""

import pytest
import torch
import torch.nn.functional as F

from lightning_fl.model.cnn import Cnn


@pytest.mark.parametrize(("in_channels", "side"), [(3, 32), (1, 28), (2, 18), (1, 21)])
def test_it_is_the_papers_net(in_channels, side, draw):
    model = Cnn(in_channels, side, 10)
    a, a0, b, b0, c, c0, d, d0, e, e0 = model.parameters()
    x = torch.randn(5, in_channels, side, side, generator=draw)
    y = F.max_pool2d(F.conv2d(x, a, a0).clamp(min=0), 2)
    y = F.max_pool2d(F.conv2d(y, b, b0).clamp(min=0), 2)
    y = F.conv2d(y, c, c0).clamp(min=0).reshape(5, -1)
    y = (y @ d.T + d0).clamp(min=0)
    torch.testing.assert_close(model(x), y @ e.T + e0)
    assert (model(x) < 0).any()
