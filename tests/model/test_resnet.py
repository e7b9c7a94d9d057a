"""Residual networks, against the paper's words typed with plain functions."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lightning_fl import SettingError
from lightning_fl.model.resnet import Resnet

EIGHTEEN = {"widths": (64, 128, 256, 512), "blocks": 2}


@pytest.mark.parametrize(
    ("settings", "d"),
    [
        ({}, 269_722),  # A, which adds no parameters
        ({"shortcut": "B"}, 269_722 + 16 * 32 + 32 * 64 + 2 * (32 + 64)),
        (EIGHTEEN | {"shortcut": "A"}, 11_173_962 - 64 * 128 - 128 * 256 - 256 * 512 - 2 * (128 + 256 + 512)),
        (EIGHTEEN | {"shortcut": "B"}, 11_173_962),
    ],
)
@pytest.mark.parametrize("norm", ["group", "batch"])
def test_number_of_parameters(settings, d, norm):
    with torch.device("meta"):
        model = Resnet(**settings, norm=norm)
    assert sum(p.numel() for p in model.parameters()) == d
    norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    channels = [layer.num_features for layer in norms]
    assert sum(b.numel() for b in model.buffers()) == sum(2 * c + 1 for c in channels)  # mean, variance and a counter
    assert bool(norms) == (norm == "batch")
    if norm == "batch" and not settings:
        assert (len(norms), sum(channels)) == (19, 16 + 6 * (16 + 32 + 64))


@pytest.mark.parametrize("shortcut", ["A", "B"])
@pytest.mark.parametrize("norm", ["group", "batch"])
def test_it_is_the_papers_net(shortcut, norm, draw):
    """Two stages of two blocks, computed from the parameters in their order."""
    model = Resnet((4, 8), 2, shortcut, norm, groups=2, in_channels=3, n_classes=5)
    for value in model.parameters():
        value.data += 0.1 * torch.randn(value.shape, generator=draw)
    values = iter(model.parameters())

    def convolved(x, stride=1, padding=1):
        x = F.conv2d(x, next(values), stride=stride, padding=padding)
        factor, offset = next(values)[:, None, None], next(values)[:, None, None]
        if norm == "batch":
            mean, square = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), unbiased=False, keepdim=True)
            return (x - mean) / (square + 1e-5).sqrt() * factor + offset
        parts = []
        for part in x.chunk(2, 1):
            mean, square = part.mean((1, 2, 3), keepdim=True), part.var((1, 2, 3), unbiased=False, keepdim=True)
            parts.append((part - mean) / (square + 1e-5).sqrt())
        return torch.cat(parts, 1) * factor + offset

    x = torch.randn(3, 3, 8, 8, generator=draw)
    y = convolved(x).relu()
    for width, stride in [(4, 1), (4, 1), (8, 2), (8, 1)]:
        inner = convolved(convolved(y, stride).relu())
        if stride == 2 and shortcut == "A":
            more = torch.zeros(3, 2, 4, 4)
            y = torch.cat([more, y[:, :, ::2, ::2], more], 1)
        elif stride == 2:
            y = convolved(y, 2, 0)
        y = (inner + y).relu()
        assert y.shape[1] == width
    expected = y.mean((2, 3)) @ next(values).T + next(values)
    torch.testing.assert_close(model(x), expected)
    assert next(values, None) is None


def test_parameters_are_drawn_as_torch_draws_them():
    torch.manual_seed(0)
    first = Resnet()[0].weight
    torch.manual_seed(0)
    assert torch.equal(first, nn.Conv2d(3, 16, 3, bias=False).weight)


def test_groups_are_those_of_group_normalisation():
    assert isinstance(Resnet((15,), 1, norm="batch")[1], nn.BatchNorm2d)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"groups": 3}, r"resnet needs widths that are multiples of groups=3, got \[16, 32, 64\]"),
        ({"widths": ()}, "resnet needs widths"),
        ({"blocks": 0}, "resnet needs blocks >= 1, got 0"),
        ({"shortcut": "C"}, "resnet's shortcut must be one of A, B, got 'C'"),
        ({"norm": "layer"}, "resnet's norm must be one of group, batch, got 'layer'"),
    ],
)
def test_what_is_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        Resnet(**settings)
