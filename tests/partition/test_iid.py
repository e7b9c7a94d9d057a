"""Shuffle and deal."""

import pytest
import torch

from lightning_fl.partition.iid import Iid


def deal(n_samples, n_clients, seed=0):
    targets = torch.arange(n_samples) % 2
    return Iid()(targets, n_clients, 2, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("n_samples", "n_clients", "sizes"), [(10, 3, [3, 3, 4]), (6, 6, [1] * 6), (8, 2, [4, 4])])
def test_everyone_gets_the_same_number_give_or_take_one(n_samples, n_clients, sizes):
    assert sorted(len(part) for part in deal(n_samples, n_clients)) == sizes


def test_samples_are_shuffled():
    # Each of two clients holds half of 10,000 samples of two classes: 2,500 of each, standard deviation 25.
    parts = deal(10_000, 2)
    for part in parts:
        assert abs(int((part % 2 == 0).sum()) - 2500) < 125
        assert abs(int((part < 5000).sum()) - 2500) < 125
