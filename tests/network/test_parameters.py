"""A model's parameters as one flat vector."""

import pytest
import torch
from torch import nn

from lightning_fl.network.parameters import flatten, nudge, trainable, unflatten


def test_flatten_and_unflatten_are_inverse(draw):
    like = [torch.zeros(2, 3), torch.zeros(()), torch.zeros(4)]
    vector = torch.randn(11, generator=draw)
    parts = unflatten(vector, like)
    assert [part.shape for part in parts] == [tensor.shape for tensor in like]
    assert parts[0].tolist() == vector[:6].view(2, 3).tolist()
    assert torch.equal(flatten(parts), vector)
    batch = torch.randn(5, 11, generator=draw)
    assert [part.shape for part in unflatten(batch, like)] == [(5, 2, 3), (5,), (5, 4)]
    assert torch.equal(unflatten(batch, like)[2], batch[:, 7:])


def test_trainable_are_the_parameters_that_learn():
    model = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.Linear(3, 1))
    model[0].requires_grad_(False)
    found = trainable(model)
    assert list(found) == ["1.weight", "1.bias", "2.weight", "2.bias"]
    assert not any(value.requires_grad for value in found.values())
    assert found["2.bias"].data_ptr() == model[2].bias.data_ptr()  # no copy


@pytest.mark.parametrize(("dtype", "bits"), [(torch.float32, torch.int32), (torch.float64, torch.int64)])
def test_a_nudge_moves_each_trained_parameter_to_a_neighbour(draw, dtype, bits):
    """Neighbours of one sign are consecutive integers in their bits."""
    model = nn.Sequential(nn.Linear(20, 30), nn.Linear(30, 2)).to(dtype)
    model[1].bias.requires_grad_(False)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    nudge(model, draw)
    moves = {name: value.detach().view(bits) - before[name].view(bits) for name, value in model.named_parameters()}
    assert not moves.pop("1.bias").any()
    for moved in moves.values():
        assert set(moved.flatten().tolist()) == {-1, 1}
    assert all(value.grad_fn is None and value.dtype == dtype for value in model.parameters())
