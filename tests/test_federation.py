"""Who takes part, who attacks, what share each has."""

import pytest
import torch

from lightning_fl import Federation, SettingError


@pytest.mark.parametrize(
    ("placement", "honest", "byzantine"),
    [("supplement", range(10), range(10, 13)), ("replacement", range(7), range(7, 10))],
)
def test_byzantine_clients_stand_beside_or_instead(placement, honest, byzantine):
    federation = Federation(10, 3, placement, "uniform")
    assert federation.honest_ids == honest
    assert federation.byzantine_ids == byzantine
    assert federation.n == len(honest) + len(byzantine)


@pytest.mark.parametrize("placement", ["supplement", "replacement"])
def test_without_attackers_the_placement_does_not_matter(placement):
    federation = Federation(4, 0, placement, "samples")
    assert federation.honest_ids == range(4)
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


@pytest.mark.parametrize(("n_clients", "n_byzantine"), [(0, 0), (-1, 0), (3, -1)])
def test_numbers_out_of_range(n_clients, n_byzantine):
    with pytest.raises(SettingError, match=rf"n_clients >= 1 and n_byzantine >= 0, got {n_clients} and {n_byzantine}"):
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
        ("beside", "uniform", r"federation.byzantine must be one of supplement, replacement, got 'beside'"),
        ("supplement", "size", r"federation.data_weights must be one of uniform, samples, got 'size'"),
    ],
)
def test_unknown_options_list_the_valid_ones(placement, data_weights, message, unchecked):
    with pytest.raises(SettingError, match=message):
        Federation(3, 1, placement, data_weights)
