"""Groups of clients that prefer one class, against the loop of Fang et al.'s experiments."""

from math import floor

import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.partition.bias_groups import BiasGroups, holders


def slow(y, r1, r2, n, c, q):
    """One interval of length q for the sample's own group between the others' of (1 - q) / (c - 1) each."""
    o = (1 - q) / (c - 1)
    low, up = y * o, y * o + q
    if r1 > up:
        group = min(floor((r1 - up) / o) + y + 1, c - 1)
    elif r1 < low:
        group = floor(r1 / o)
    else:
        group = y
    return group * n // c + floor(r2 * n / c)


@pytest.mark.parametrize(
    ("y", "r1", "r2", "client"),
    [(3, 0.05, 0.5, 2), (3, 0.35, 0.99, 19), (3, 0.75, 0.0, 25), (0, 0.1, 0.3, 1), (9, 0.97, 0.6, 48)],
)
def test_by_hand(y, r1, r2, client):
    """Ten classes, 50 clients, q = 1/2: intervals of 1/18."""
    draws = torch.tensor([[r1, r2]], dtype=torch.float64)
    assert holders(torch.tensor([y]), draws, 50, 10, 0.5).tolist() == [client] == [slow(y, r1, r2, 50, 10, 0.5)]


@pytest.mark.parametrize("q", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_equals_the_loop(q, draw):
    labels, draws = torch.arange(500) % 5, torch.rand(500, 2, dtype=torch.float64, generator=draw)
    expected = [slow(y, r1, r2, 20, 5, q) for y, (r1, r2) in zip(labels.tolist(), draws.tolist(), strict=True)]
    assert holders(labels, draws, 20, 5, q).tolist() == expected


def test_a_group_holds_its_class_with_probability_q(draw):
    labels = torch.arange(20_000) % 4
    parts = BiasGroups(0.7)(labels, 8, 4, draw)
    own = sum(int((labels[part] == client // 2).sum()) for client, part in enumerate(parts)) / 20_000
    assert own == pytest.approx(0.7, abs=4 * (0.7 * 0.3 / 20_000) ** 0.5)
    assert {tuple(labels[part].unique().tolist()) for part in BiasGroups(1.0)(labels, 8, 4, draw)} == {
        (z,) for z in range(4)
    }


def test_what_is_refused():
    with pytest.raises(SettingError, match=r"bias_groups needs .*q"):
        BiasGroups(-0.1)
    with pytest.raises(SettingError, match="as many clients for each of 3 classes, got 8 clients"):
        BiasGroups()(torch.arange(30) % 3, 8, 3, torch.Generator())
