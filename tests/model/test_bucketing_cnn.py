"""The bucketing paper's net."""

import pytest
import torch
import torch.nn.functional as F

from lightning_fl.model.bucketing_cnn import BucketingCnn


@pytest.mark.parametrize("side", [28, 7])
def test_it_is_the_papers_net(side, draw):
    model = BucketingCnn(1, side, 10)
    a, a0, b, b0, c, c0, d, d0 = model.parameters()
    x = torch.randn(5, 1, side, side, generator=draw)
    y = F.max_pool2d(F.conv2d(F.conv2d(x, a, a0).clamp(min=0), b, b0), 2).reshape(5, -1)
    expected = (y @ c.T + c0).clamp(min=0) @ d.T + d0
    torch.testing.assert_close(model.eval()(x), expected, rtol=1e-4, atol=1e-5)


def test_what_is_dropped():
    """A quarter of the channels, as a whole, and half of the hidden layer, number by number."""
    x = torch.ones(50, 64, 3, 3)
    model = BucketingCnn(1, 10, 10).train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        channels, hidden = model[4](x), model[8](x[:, :, 0, 0])
    assert ((channels != 0).flatten(2).any(2) == (channels != 0).flatten(2).all(2)).all()
    assert (channels == 0).double().mean().item() == pytest.approx(0.25, abs=0.03)
    assert (hidden == 0).double().mean().item() == pytest.approx(0.5, abs=0.03)
