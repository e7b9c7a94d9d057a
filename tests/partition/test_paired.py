"""Every class has its own clients."""

import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.partition.paired import Paired
from tests.partition.dealing import MNIST, deal


def test_the_papers_twenty_clients():
    # Class z at clients 2z and 2z + 1, in halves; class 1 has 6,742 images, class 0 an odd number.
    _, table = deal(Paired(), MNIST, 20)
    assert table[0] == [2962, *[0] * 9]
    assert table[1] == [2961, *[0] * 9]
    assert table[2] == table[3] == [0, 3371, *[0] * 8]
    assert [row.index(max(row)) for row in table] == [z for z in range(10) for _ in range(2)]
    assert all(sum(n > 0 for n in row) == 1 for row in table)


def test_the_last_four_clients_are_all_who_hold_the_last_two_classes():
    _, table = deal(Paired(), MNIST, 20)
    honest = [sum(row[z] for row in table[:16]) for z in range(10)]
    assert honest == [*MNIST[:8], 0, 0]


@pytest.mark.parametrize(
    ("sizes", "n_clients", "table"),
    [([5, 4], 2, [[5, 0], [0, 4]]), ([7, 3], 6, [[3, 0], [2, 0], [2, 0], [0, 1], [0, 1], [0, 1]])],
)
def test_other_numbers_of_clients_a_class(sizes, n_clients, table):
    assert deal(Paired(), sizes, n_clients)[1] == table


def test_which_half_a_sample_is_in_is_drawn():
    # Each sample of the class is in the first half in about half of the draws: 200 draws, standard deviation 7.
    counts = torch.zeros(8)
    for seed in range(200):
        counts[Paired()(torch.zeros(8, dtype=torch.int64), 2, 1, torch.Generator().manual_seed(seed))[0]] += 1
    assert ((counts - 100).abs() < 35).all()


@pytest.mark.parametrize("n_clients", [1, 15, 21])
def test_a_multiple_of_the_number_of_classes_is_needed(n_clients):
    with pytest.raises(SettingError, match=rf"paired needs a multiple of 10 clients.*got {n_clients}; change federat"):
        deal(Paired(), [30] * 10, n_clients)


def test_a_class_with_too_few_samples_is_refused():
    with pytest.raises(SettingError, match=r"every client needs a sample, got none for 1 of 4 clients \(first: 3\)"):
        deal(Paired(), [9, 1], 4)
