"""Fully connected layers with ReLU between them."""

import torch
from torch import nn

from lightning_fl.model.mlp import Mlp


def test_it_is_linear_maps_with_relu_between_and_none_after(draw):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Mlp(12, [5, 4], 3)
    a, b, c = (layer for layer in model if isinstance(layer, nn.Linear))
    x = torch.randn(60, 1, 3, 4, generator=draw)
    hidden = (x.reshape(60, 12) @ a.weight.T + a.bias).clamp(min=0)
    hidden = (hidden @ b.weight.T + b.bias).clamp(min=0)
    logits = hidden @ c.weight.T + c.bias
    torch.testing.assert_close(model(x), logits)
    assert (model(x) < 0).any()


def test_settings_as_configurations_give_them():
    assert [type(layer).__name__ for layer in Mlp(4, [3], 2)] == ["Flatten", "Linear", "ReLU", "Linear"]
