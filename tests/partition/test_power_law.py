"""Sizes drawn from a power law."""

import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.partition.power_law import PowerLaw, pareto


def test_sizes_are_in_proportion_to_pareto_numbers():
    """By the loop: one uniform number per client, then the permutation, from the same generator."""
    sizes = [len(part) for part in PowerLaw(2.0, 3)(torch.zeros(1000).long(), 6, 1, torch.Generator().manual_seed(1))]
    u = torch.rand(6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).tolist()
    weights = [(1 - value) ** -0.5 for value in u]
    for size, weight in zip(sizes, weights, strict=True):
        assert abs(size - 3 - (1000 - 18) * weight / sum(weights)) <= 1
    assert sum(sizes) == 1000


@pytest.mark.parametrize("exponent", [0.5, 1.5, 4.0])
def test_the_tail_is_a_power(exponent, draw):
    """P(X > s) = s^-exponent above the smallest: half of the clients lie below 2^(1 / exponent) times it."""
    found = pareto(1 - torch.rand(20_001, dtype=torch.float64, generator=draw), exponent)
    found = found / found.min()
    assert found.median().item() == pytest.approx(2 ** (1 / exponent), rel=0.05 / exponent)


@pytest.mark.parametrize("exponent", [5e-324, 1e-3, 1e6])
def test_extreme_exponents(exponent, draw):
    sizes = [len(part) for part in PowerLaw(exponent)(torch.zeros(500).long(), 5, 1, draw)]
    assert max(sizes) == 496 if exponent < 1 else set(sizes) <= {99, 100, 101}


def test_classes_are_mixed(draw):
    labels = torch.arange(4000) % 4
    shares = [labels[part].bincount(minlength=4) / len(part) for part in PowerLaw(4.0)(labels, 8, 4, draw)]
    assert torch.stack(shares).sub(0.25).abs().max() < 0.15


@pytest.mark.parametrize(("settings", "name"), [({"exponent": 0.0}, "exponent"), ({"min_samples": 0}, "min_samples")])
def test_settings_out_of_range(settings, name):
    with pytest.raises(SettingError, match=f"power_law needs {name}"):
        PowerLaw(**settings)


def test_too_few_samples():
    with pytest.raises(SettingError, match="power_law needs 3 samples for each of 4 clients, got 11 in all"):
        PowerLaw(min_samples=3)(torch.zeros(11).long(), 4, 1, torch.Generator())
