"""Who takes part, who attacks, what share each has."""

from math import comb, sqrt

import pytest
import torch

from lightning_fl import Federation, SettingError


@pytest.mark.parametrize(
    ("placement", "honest", "byzantine"),
    [("supplement", range(10), range(10, 13)), ("replacement", range(7), range(7, 10))],
)
def test_byzantine_clients_stand_beside_or_instead(placement, honest, byzantine):
    federation = Federation(10, 3, placement, "uniform")
    assert federation.honest_ids == list(honest)
    assert federation.byzantine_ids == list(byzantine)
    assert federation.n == len(honest) + len(byzantine)


@pytest.mark.parametrize("placement", ["supplement", "replacement"])
def test_without_attackers_the_placement_does_not_matter(placement):
    federation = Federation(4, 0, placement, "samples")
    assert federation.honest_ids == [0, 1, 2, 3]
    assert len(federation.byzantine_ids) == 0
    assert federation.weights([1, 2, 3, 4]).tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_uniform_shares():
    shares = Federation(3, 2, "supplement", "uniform").weights([5, 1, 100])
    assert shares.tolist() == pytest.approx([0.2] * 5)
    assert shares.dtype == torch.float64


def test_shares_by_samples():
    # Held 1, 2 and 6: the average 3 for each of two clients without data, 15 in all.
    shares = Federation(3, 2, "supplement", "samples").weights([1, 2, 6])
    assert shares.tolist() == pytest.approx([1 / 15, 2 / 15, 6 / 15, 3 / 15, 3 / 15])
    # The last two of four attack and keep the share of what they held.
    shares = Federation(4, 2, "replacement", "samples").weights([1, 2, 3, 4])
    assert shares.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize(
    ("n_clients", "n_byzantine", "message"),
    [
        (0, 0, "federation needs n_clients >= 1, got 0"),
        (-1, 0, "federation needs n_clients >= 1, got -1"),
        ("20", 0, "federation needs a whole number as n_clients, got '20'"),
        (3, -1, "federation needs n_byzantine >= 0, got -1"),
        (3, 0.5, r"federation needs a whole number as n_byzantine, got 0\.5"),
    ],
)
def test_numbers_out_of_range(n_clients, n_byzantine, message):
    with pytest.raises(SettingError, match=message):
        Federation(n_clients, n_byzantine, "supplement", "uniform")


@pytest.mark.parametrize("n_byzantine", [3, 4])
def test_replacement_leaves_an_honest_client(n_byzantine):
    with pytest.raises(SettingError, match="replacement needs an honest client"):
        Federation(3, n_byzantine, "replacement", "uniform")
    assert len(Federation(3, 2, "replacement", "uniform").honest_ids) == 1
    assert len(Federation(3, n_byzantine, "supplement", "uniform").honest_ids) == 3


@pytest.mark.parametrize(
    ("placement", "data_weights", "message"),
    [
        ("beside", "uniform", r"federation's byzantine must be one of supplement, replacement, got 'beside'"),
        ("supplement", "size", r"federation's data_weights must be one of uniform, samples, got 'size'"),
    ],
)
def test_unknown_options_list_the_valid_ones(placement, data_weights, message):
    with pytest.raises(SettingError, match=message):
        Federation(3, 1, placement, data_weights)


def test_listed_clients_attack():
    federation = Federation(5, 2, "replacement", "samples", which=[3, 0])
    assert (federation.honest_ids, federation.byzantine_ids) == ([1, 2, 4], [0, 3])
    # Held 1, 2, 3, 4 and 5 of 15: honest ones first.
    assert (federation.weights([1, 2, 3, 4, 5]) * 15).tolist() == pytest.approx([2, 3, 5, 1, 4])
    assert federation.byzantine_share([1, 2, 3, 4, 5]) == pytest.approx(5 / 15)
    assert Federation(5, 0, "replacement", "samples", which=[3, 0]).byzantine_ids == []  # nobody attacks


def test_attackers_drawn_at_random():
    draws = [Federation(20, 5, "replacement", "uniform", which="random", seed=seed) for seed in range(40)]
    for federation in draws:
        assert len(set(federation.byzantine_ids)) == 5
        assert sorted(federation.honest_ids + federation.byzantine_ids) == list(range(20))
    assert draws[3].byzantine_ids == Federation(20, 5, "replacement", "uniform", "random", seed=3).byzantine_ids
    assert {i for federation in draws for i in federation.byzantine_ids} == set(range(20))


@pytest.mark.parametrize(
    ("placement", "which", "message"),
    [
        ("supplement", "random", "come last, got federation.which=random; set federation.byzantine=replacement"),
        ("replacement", "first", "must be last, random or a list of clients, got 'first'"),
        ("replacement", [1], r"needs n_byzantine=2 different clients in \[0, 5\), got \[1\]"),
        ("replacement", [1, 1], r"different clients in \[0, 5\), got \[1, 1\]"),
        ("replacement", [1, 5], r"different clients in \[0, 5\), got \[1, 5\]"),
        ("replacement", [-1, 2], r"different clients in \[0, 5\), got \[-1, 2\]"),
    ],
)
def test_attackers_that_cannot_be(placement, which, message):
    with pytest.raises(SettingError, match=message):
        Federation(5, 2, placement, "uniform", which)


# BOBA's Table 8: 160 honest and 54 Byzantine clients.
TABLE_8 = [(0.25, 40, 14), (0.5, 80, 27), (0.75, 120, 40), (1.0, 160, 54)]


@pytest.mark.parametrize(("rate", "honest", "byzantine"), TABLE_8)
def test_a_round_draws_its_clients(rate, honest, byzantine):
    federation = Federation(160, 54, "supplement", "uniform", participation=rate)
    rounds = [federation.participants(t) for t in range(30)]
    assert {(len(h), len(b)) for h, b in rounds} == {(honest, byzantine)}
    assert federation.n == honest + byzantine
    for h, b in rounds:
        assert h == sorted(set(h) & set(range(160)))
        assert b == sorted(set(b) & set(range(160, 214)))
    assert rounds == [federation.participants(t) for t in range(30)]
    assert {i for h, b in rounds for i in [*h, *b]} == set(range(214))
    if rate < 1:
        assert rounds[0] != rounds[1]
        assert rounds[0] != Federation(160, 54, "supplement", "uniform", participation=rate, seed=1).participants(0)


def test_somebody_honest_takes_part():
    federation = Federation(3, 0, "supplement", "uniform", participation=0.01)
    assert [len(group) for group in federation.participants(0)] == [1, 0]
    assert federation.n == 1


def test_refuses_attackers_who_never_take_part():
    with pytest.raises(SettingError, match=r"participation=0\.25 of \d+ clients takes none of 2 Byz"):
        Federation(16, 2, "supplement", "uniform", participation=0.25)


def test_shares_of_those_present():
    federation = Federation(4, 1, "replacement", "samples", participation=0.75)
    assert federation.weights([1, 2, 3, 4], [2, 0, 3]).tolist() == pytest.approx([3 / 8, 1 / 8, 4 / 8])


@pytest.mark.parametrize("rate", [0.0, -0.5, 1.1, float("nan")])
def test_rates_out_of_range(rate):
    message = "a share above 0 and at most 1, or how many of 4 clients" if rate == rate else "a finite participation"
    with pytest.raises(SettingError, match=message):
        Federation(3, 1, "supplement", "uniform", participation=rate)


def test_what_supplementary_byzantine_clients_train_on():
    for choice in (None, "copies", "iid"):
        assert Federation(4, 2, "supplement", "uniform", byzantine_data=choice).byzantine_data == choice
    with pytest.raises(SettingError, match=r"federation's byzantine_data must be one of copies, iid, got 'all'"):
        Federation(4, 2, "supplement", "uniform", byzantine_data="all")
    with pytest.raises(SettingError, match=r"for supplementary Byzantine clients only, got iid and federation"):
        Federation(4, 2, "replacement", "uniform", byzantine_data="iid")


@pytest.mark.parametrize(("n", "b", "k"), [(100, 20, 10), (20, 5, 4)])
def test_of_everybody_the_number_of_attackers_is_hypergeometric(n, b, k):
    federation = Federation(n, b, "replacement", participation=k / n, sampling="everybody")
    counts = [0] * (k + 1)
    for index in range(1000):
        honest, byzantine = federation.participants(index)
        assert len(honest) + len(byzantine) == k == federation.n
        assert set(honest) <= set(federation.honest_ids)
        assert set(byzantine) <= set(federation.byzantine_ids)
        counts[len(byzantine)] += 1
    for drawn, count in enumerate(counts):
        chance = comb(b, drawn) * comb(n - b, k - drawn) / comb(n, k)
        assert abs(count / 1000 - chance) <= 4 * sqrt(chance * (1 - chance) / 1000) + 1e-3


def drawn(federation, rounds):
    return [[*honest, *byzantine] for honest, byzantine in map(federation.participants, range(rounds))]


def test_as_many_take_part_as_are_asked_for():
    for n, b, k in [(3400, 340, 34), (100, 15, 7), (20, 5, 20)]:
        federation = Federation(n, b, "replacement", participation=k, sampling="everybody")
        assert {federation.n, *(len(round_) for round_ in drawn(federation, 5))} == {k}
        assert federation.replace(seed=1).n == k
    assert drawn(Federation(40, 10, "replacement", participation=20), 3) == drawn(
        Federation(40, 10, "replacement", participation=0.5), 3
    )


def test_by_bernoulli_each_client_is_drawn_alone():
    """25 clients at 0.1: nobody in 0.9^25 of the rounds."""
    federation = Federation(25, 5, "replacement", participation=0.1, sampling="bernoulli")
    rounds = drawn(federation, 1000)
    nobody = 0.9**25
    assert abs(rounds.count([]) / 1000 - nobody) < 4 * sqrt(nobody * (1 - nobody) / 1000)
    for client in range(25):
        assert abs(sum(client in present for present in rounds) / 1000 - 0.1) < 4 * sqrt(0.09 / 1000)
    assert rounds[:9] == drawn(federation, 9) != drawn(federation.replace(seed=1), 9)


def test_where_everybody_takes_part_nothing_is_drawn():
    for sampling in ("groups", "everybody", "bernoulli"):
        federation = Federation(4, 1, sampling=sampling)
        assert federation.participants(3) == ([0, 1, 2, 3], [4])
        assert not federation.varies
    with pytest.raises(SettingError, match=r"federation's sampling must be"):
        Federation(4, 1, sampling="all")


@pytest.mark.parametrize(("n", "b", "k"), [(10, 5, 5), (14, 5, 7), (100, 15, 10), (6, 3, 2)])
def test_a_count_is_met_in_groups_too(n, b, k):
    """Halves of both groups would be rounded one by one."""
    federation = Federation(n, b, "replacement", participation=k)
    assert sum(map(len, federation.participants(0))) == federation.n == k
    assert abs(federation.present[1] - k * b / n) <= 0.5
    assert federation.replace(n_byzantine=0).n == k
    assert federation.replace(n_byzantine=0).participation == k / n
    assert Federation(4, 2, participation=6).replace(n_byzantine=0).n == 4
