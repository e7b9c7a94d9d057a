"""Meamed and Phocas: means of the values nearest to a centre, which is the median or the trimmed mean."""

import pytest
import torch

from lightning_fl.aggregator.meamed import Meamed
from lightning_fl.aggregator.phocas import Phocas
from tests.aggregator import reference_peers as peers

D = 6
RULES = {
    "meamed": (Meamed, peers.mean_around_median),
    "phocas": (Phocas, peers.phocas),
}


@pytest.mark.parametrize("name", RULES)
def test_of_two_values_equally_near_the_smaller_one_counts(name):
    """Of 0, 1, 2, 3, 4 around 2, four values; rows in any order."""
    kind = RULES[name][0]
    for order in [[0.0, 1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0, 0.0]]:
        assert kind(1)(torch.tensor(order)[:, None]).item() == 1.5


@pytest.mark.parametrize("name", RULES)
def test_equal_values_are_as_near_as_one_of_them(name):
    """Around 4, the three nearest of 0, 0, 4, 5, 5 are 4, 5, 5: a zero lost does not show in the largest distance."""
    kind = RULES[name][0]
    x = torch.tensor([[0.0], [0.0], [4.0], [5.0], [5.0]])
    assert kind(2)(x).item() == pytest.approx(14 / 3)


@pytest.mark.parametrize("name", RULES)
def test_negative_rows_give_the_negative_result(name, draw):
    kind = RULES[name][0]
    x = torch.randn(11, D, generator=draw, dtype=torch.float64)
    torch.testing.assert_close(kind(3)(-x), -kind(3)(x))
