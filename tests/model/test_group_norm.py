"""Group normalisation in place of batch normalisation."""

import pytest
import torch
from torch import nn

import lightning_fl as fl
from lightning_fl import SettingError


def test_only_batch_normalisation_is_replaced():
    inner = nn.Sequential(nn.BatchNorm1d(6), nn.LayerNorm(6), nn.BatchNorm2d(5, affine=False))
    model = nn.Sequential(nn.Linear(6, 6), inner).double()
    inner[0].weight.data.uniform_()
    kept = str(model)
    found = fl.model.with_group_norm(model, groups=4)
    assert str(model) == kept
    norm, other, plain = found[1]
    assert isinstance(other, nn.LayerNorm)
    assert (norm.num_groups, norm.num_channels, plain.num_groups, plain.affine) == (1, 6, 1, False)
    assert norm.weight.dtype == torch.float64
    assert torch.equal(norm.weight, inner[0].weight)
    assert norm.weight is not inner[0].weight
    assert not list(found.buffers())


def test_after_a_linear_layer_a_channel_is_one_number():
    """In 32 groups of one or two numbers nothing would be left of them."""
    norm = fl.model.with_group_norm(nn.Sequential(nn.Linear(3, 64), nn.BatchNorm1d(64)))[1]
    x = torch.randn(2, 64)
    torch.testing.assert_close(norm(x), nn.functional.layer_norm(x, (64,)))


def test_a_model_that_is_one_itself():
    assert isinstance(fl.model.with_group_norm(nn.BatchNorm2d(4)), nn.GroupNorm)


def test_one_in_two_places_is_replaced_in_both():
    norm = nn.BatchNorm2d(4)
    first, second = fl.model.with_group_norm(nn.Sequential(norm, norm))
    assert first is second
    assert isinstance(first, nn.GroupNorm)


def test_a_federation_takes_the_copy():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.LazyLinear(2))
    model(torch.zeros(2, 3, 5, 5))
    with pytest.raises(SettingError, match="use GroupNorm"):
        fl.FederatedModule(model)
    fl.FederatedModule(fl.model.with_group_norm(model))


def test_groups_out_of_range():
    with pytest.raises(SettingError, match="groups must be a whole number of at least 1, got 0"):
        fl.model.with_group_norm(nn.Identity(), groups=0)
