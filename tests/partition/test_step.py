"""Two major classes per client, the others minor."""

import math
from fractions import Fraction

import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.contract import conf
from lightning_fl.partition.pathological import Pathological
from lightning_fl.partition.step import Step
from tests.partition.dealing import MNIST, deal


def authors_table(sizes, n_clients, alpha):
    """The authors' construction in words (spec/boba.md 4.2, 4.3), exactly: weights, normalised, cumulated, rounded."""
    c = len(sizes)
    table = [[0] * c for _ in range(n_clients)]
    for z in range(c):
        weights: list[Fraction] = []
        for a in range(c):
            for b in range(c):
                weight = Fraction(0 if alpha == math.inf else 1)
                for label in (a, b):
                    if label == z:
                        weight += 1 if alpha == math.inf else Fraction(alpha) - 1
                weights += [weight] * (n_clients // c**2)
        cumulated, start = Fraction(0), 0
        for client, weight in enumerate(weights):
            cumulated += weight / sum(weights)
            end = int(cumulated * sizes[z] + Fraction(1, 2))
            table[client][z] = end - start
            start = end
    return table


def test_four_clients_by_hand():
    # alpha = 3, pairs (0,0) (0,1) (1,0) (1,1).  Weights for class 0: 1 + 2 + 2 = 5, 3, 3, 1 of 12, and mirrored
    # for class 1.  With weight alpha for the pair (0, 0) it were 3, 3, 3, 1 of 10, so 7 samples of class 0 at client 0.
    assert deal(Step(3.0), [24, 12], 4)[1] == [[10, 1], [6, 3], [6, 3], [2, 5]]


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0, 4.0, 8.0, 1e6, math.inf])
@pytest.mark.parametrize(("sizes", "n_clients"), [(MNIST, 100), ([400] * 4, 32), ([50, 61, 72], 18)])
def test_counts_are_the_authors(sizes, n_clients, alpha):
    assert deal(Step(alpha), sizes, n_clients)[1] == authors_table(sizes, n_clients, alpha)


@pytest.mark.parametrize(("sizes", "n_clients"), [(MNIST, 100), ([50, 61, 72], 18)])
def test_infinite_alpha_is_the_pathological_partition(sizes, n_clients):
    ours, theirs = (deal(partition, sizes, n_clients)[0] for partition in (Step(math.inf), Pathological("pairs", 2)))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_alpha_1_gives_everybody_the_same_mixture():
    _, table = deal(Step(1.0), MNIST, 100)
    for z, size in enumerate(MNIST):
        assert {row[z] for row in table} <= {size // 100, size // 100 + 1}


def test_alpha_is_the_ratio_of_major_to_minor():
    _, table = deal(Step(8.0), [36_000] * 4, 16)
    minor = table[1][2]
    assert minor == 36_000 / (16 + 8 * 7)  # 16 clients of weight 1, and 4 + 4 times 7 more
    assert table[1] == [8 * minor, 8 * minor, minor, minor]  # the pair (0, 1)
    assert table[0] == [15 * minor, minor, minor, minor]  # (0, 0)


@pytest.mark.parametrize(("typed", "alpha"), [("inf", math.inf), ("2.5", 2.5)])
def test_alpha_from_the_command_line(typed, alpha):
    assert conf.compose("partition=step", f"partition.alpha={typed}").partition.alpha == alpha


@pytest.mark.parametrize("n_clients", [1, 3, 5, 50, 99, 101])
def test_a_multiple_of_the_number_of_pairs_is_needed(n_clients):
    with pytest.raises(SettingError, match=rf"step needs a multiple of c\^2 = 4 clients.*got {n_clients}; change"):
        deal(Step(2.0), [500, 500], n_clients)


def test_a_client_without_samples_is_refused():
    with pytest.raises(SettingError, match=r"every client needs a sample, got none for 1 of 4 clients \(first: 3\)"):
        deal(Step(math.inf), [10, 0], 4)


@pytest.mark.parametrize("alpha", [0.99, 0.0, -1.0, math.nan, -math.inf])
def test_alpha_out_of_range(alpha):
    with pytest.raises(SettingError, match=rf"step needs .*1 <= alpha <= inf, got {alpha}"):
        Step(alpha)
