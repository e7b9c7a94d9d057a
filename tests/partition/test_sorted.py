"""Sorted by class and cut into equal blocks."""

import numpy as np
import pytest
import torch

from lightning_fl.partition.sorted import Sorted
from tests.partition.dealing import MNIST, deal


def test_blocks_by_hand():
    # 0 0 0 0 0 | 1 1 1 2: blocks of 3, 3, 3; not one class a client, and not the same share of each class.
    assert deal(Sorted(), [5, 3, 1], 3)[1] == [[3, 0, 0], [2, 1, 0], [0, 2, 1]]
    assert deal(Sorted(), [4, 4], 3)[1] == [[3, 0], [1, 2], [0, 2]]  # 8 samples: 3, 3, 2


@pytest.mark.parametrize(("sizes", "n_clients"), [(MNIST, 100), (MNIST, 7), ([50, 61, 72], 10), ([5, 0, 9], 4)])
def test_counts_are_those_of_sorted_labels(sizes, n_clients):
    blocks = np.array_split(np.repeat(np.arange(len(sizes)), sizes), n_clients)
    assert deal(Sorted(), sizes, n_clients)[1] == [
        np.bincount(block, minlength=len(sizes)).tolist() for block in blocks
    ]


def test_a_client_holds_one_class_where_blocks_divide_classes():
    _, table = deal(Sorted(), [400] * 10, 100)
    assert [row.index(40) for row in table] == [client // 10 for client in range(100)]


def test_the_seed_decides_which_samples():
    # Client 0 holds 40 of 400: two draws share 4 of them on average, standard deviation below 2.
    (ours, *_), (theirs, *_) = deal(Sorted(), [400] * 10, 100)[0], deal(Sorted(), [400] * 10, 100, seed=1)[0]
    assert torch.isin(ours, theirs).sum() < 14
