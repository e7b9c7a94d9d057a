"""One or two classes per client."""

import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.partition.pathological import Pathological
from tests.partition.dealing import MNIST, deal, targets_of


def counts(sizes, n_clients, assignment="pairs", shards_per_client=2, seed=0):
    """For each client how many samples of each class."""
    return deal(Pathological(assignment, shards_per_client), sizes, n_clients, seed)[1]


def authors_table(sizes, n_clients):
    """The authors' construction in words (spec/boba.md 4.2): weights, normalised by class, cumulated, rounded."""
    c = len(sizes)
    repeat = n_clients // c**2
    weights = [[0.0] * c for _ in range(n_clients)]
    client = 0
    for a in range(c):
        for b in range(c):
            for _ in range(repeat):
                weights[client][a] += 1
                weights[client][b] += 1
                client += 1
    table = [[0] * c for _ in range(n_clients)]
    for z in range(c):
        total, cumulated, start = sum(row[z] for row in weights), 0.0, 0
        for client in range(n_clients):
            cumulated += weights[client][z]
            end = int(cumulated / total * sizes[z] + 0.5)
            table[client][z] = end - start
            start = end
    return table


def test_four_clients_by_hand():
    # Pairs (0,0) (0,1) (1,0) (1,1).  Class 0: 10 samples in 4 shards end at 2.5 5 7.5 10, rounded half up 3 5 8 10;
    # client 0 takes two shards, clients 1 and 2 one each.  Class 1: 8 samples in 4 shards of 2.
    assert counts([10, 8], 4) == [[5, 0], [3, 2], [2, 2], [0, 4]]


@pytest.mark.parametrize(
    ("sizes", "n_clients"),
    [(MNIST, 100), ([400] * 10, 100), ([30_000] * 4, 160), ([30_000] * 4, 16), ([50, 61, 72], 18)],
)
def test_pairs_are_the_authors(sizes, n_clients):
    assert counts(sizes, n_clients) == authors_table(sizes, n_clients)


def test_mnist_as_the_paper_has_it():
    table = counts(MNIST, 100)
    held = [sum(n > 0 for n in row) for row in table]
    assert held.count(1) == 10
    assert held.count(2) == 90
    assert [z for z, n in enumerate(table[0]) if n] == [0]  # mimicked by the Mimic attack
    assert [z for z, n in enumerate(table[37]) if n] == [3, 7]
    shards = [n for row in table for n in row if n]
    pure = [n for row in table for n in row if n and sum(m > 0 for m in row) == 1]
    assert min(shards) == 271
    assert max(set(shards) - set(pure)) == 338  # 6742 / 20 = 337.1


def test_pairs_do_not_depend_on_the_seed_but_the_samples_do():
    sizes = [40, 40]
    assert counts(sizes, 4, seed=0) == counts(sizes, 4, seed=1)
    deal, targets = Pathological("pairs", 2), targets_of(sizes)
    first, second = (deal(targets, 4, 2, torch.Generator().manual_seed(seed))[1] for seed in (0, 1))
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("sizes", "n_clients", "shards_per_client"),
    [(MNIST, 100, 2), ([400] * 10, 37, 2), ([7, 5], 6, 2), ([9, 0, 9], 3, 3), ([1] * 12, 4, 3)],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_client_holds_no_more_classes_than_shards(sizes, n_clients, shards_per_client, seed):
    table = counts(sizes, n_clients, "shards", shards_per_client, seed)
    assert all(1 <= sum(n > 0 for n in row) <= shards_per_client for row in table)
    assert [sum(row[z] for row in table) for z in range(len(sizes))] == sizes


@pytest.mark.parametrize(("sizes", "n_clients"), [(MNIST, 200), ([400] * 10, 37), ([7, 5], 12), ([9, 0, 9], 3)])
def test_shards_of_a_class_are_equal_and_as_many_as_its_share_of_the_data(sizes, n_clients):
    table = counts(sizes, n_clients, "shards", 1)  # one shard a client: each shard can be seen
    for z, size in enumerate(sizes):
        shards = [row[z] for row in table if row[z]]
        exact = n_clients * size / sum(sizes)
        assert abs(len(shards) - exact) < 1
        assert not shards or max(shards) - min(shards) <= 1


def test_shards_by_hand():
    # 4 clients x 1 shard over 30 and 10 samples: exact 3 and 1, so shards of 10, whoever gets them.
    for seed in range(5):
        assert sorted(counts([30, 10], 4, "shards", 1, seed)) == [[0, 10], [10, 0], [10, 0], [10, 0]]
    # Largest remainder: 5 shards over 8 and 5 samples, exact 3.08 and 1.92, so 3 and 2: 3 + 3 + 2 and 3 + 2.
    for seed in range(5):
        assert sorted(counts([8, 5], 5, "shards", 1, seed)) == [[0, 2], [0, 3], [2, 0], [3, 0], [3, 0]]
    # A rare class keeps one shard, taken from the others: exact 4.9 and 0.1, or 4.9, 0.05 and 0.05.
    assert sorted(counts([98, 2], 5, "shards", 1)) == [[0, 2], [24, 0], [24, 0], [25, 0], [25, 0]]
    assert sorted(counts([100, 1, 1], 5, "shards", 1))[2:] == [[33, 0, 0], [33, 0, 0], [34, 0, 0]]


def test_shards_are_dealt_at_random():
    # Each of two clients draws two of the four shards a a b b; it draws both of one class in 2 of 6 cases.
    single = sum(counts([20, 20], 2, "shards", 2, seed)[0] in ([20, 0], [0, 20]) for seed in range(150))
    assert abs(single - 50) < 5 * (150 * 2 / 9) ** 0.5


@pytest.mark.parametrize("n_clients", [1, 3, 5, 50, 99, 101])
def test_where_pairs_do_not_fit_shards_are_dealt(n_clients):
    assert counts([500, 500], n_clients) == counts([500, 500], n_clients, "shards")
    assert f"{n_clients} clients are not a multiple of c^2 = 4" in Pathological("pairs", 2).note(n_clients, 2)
    assert Pathological("shards", 2).note(n_clients, 2) is None


def test_where_pairs_fit_nothing_is_said():
    assert Pathological("pairs", 2).note(8, 2) is None


def test_pairs_that_leave_a_client_empty_are_refused():
    # Without a sample of class 1 the client of the pair (1, 1) has nothing.
    with pytest.raises(SettingError, match=r"every client needs a sample, got none for 1 of 4 clients \(first: 3\)"):
        counts([10, 0], 4)


@pytest.mark.parametrize(("sizes", "n_clients"), [([5, 5, 5], 1), ([3, 3], 4)])
def test_shards_are_at_least_one_a_class_and_at_most_one_a_sample(sizes, n_clients):
    with pytest.raises(
        SettingError, match=rf"needs between {len(sizes)} .* and {sum(sizes)} .* got {n_clients} clients x 2"
    ):
        counts(sizes, n_clients, "shards", 2)


@pytest.mark.parametrize(
    ("assignment", "shards_per_client", "message"),
    [
        ("random", 2, "pathological's assignment must be one of pairs, shards, got 'random'"),
        ("pairs", 3, "assignment=pairs needs shards_per_client=2, got 3"),
        ("shards", 0, "pathological needs shards_per_client >= 1, got 0"),
    ],
)
def test_settings_out_of_range(assignment, shards_per_client, message):
    with pytest.raises(SettingError, match=message):
        Pathological(assignment, shards_per_client)
