"""Rules on combinations of the updates, by loops over every client and combination."""

import numpy as np
import pytest
import torch

from lightning_fl import SettingError, Updates
from lightning_fl.aggregator.arc import Arc
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.aggregator.boba import Boba
from lightning_fl.aggregator.clipping import Clipping
from lightning_fl.aggregator.foolsgold import Foolsgold
from lightning_fl.aggregator.gas import Gas
from lightning_fl.aggregator.mixing import Mixing, finite_shares
from lightning_fl.aggregator.monna import Monna
from lightning_fl.aggregator.nnm import Nnm
from lightning_fl.contract import world
from lightning_fl.contract.case import case
from lightning_fl.updates.mixed import mix
from tests.aggregator import reference

X = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0], [4.0, -1.0, 0.0], [-2.0, 2.0, 5.0]])
# Two averages, a row scaled down, one taken from another, and nothing at all.
M = np.array([[0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25], [0, 0, 0.1, 0], [0, -1.0, 0, 1.5], [0, 0, 0, 0]])
SHARES = np.array([0.1, 0.2, 0.3, 0.4, 0.0])
WEIGHTS = np.array([0.4, 0.3, 0.2, 0.05, 0.05])
TRUST = np.array([0.5, 0.25, 0.125, 0.1, 0.025])


MIXING = {
    "arc": (lambda f: Arc(Average(), f), reference.adaptive_clipping, (0, 1, 3, 5)),
    "clipping": (lambda radius: Clipping(Average(), radius), reference.clipped, (0.0, 0.5, 2.0, 1e9)),
    "nnm": (lambda f: Nnm(Average(), f), reference.nearest_neighbor_mixing, (0, 3, 10)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("problem", reference.PROBLEMS)
@pytest.mark.parametrize("name", MIXING)
def test_what_the_rule_sees_agrees_with_the_loop(name, problem, dtype):
    make, loop, settings = MIXING[name]
    for setting in settings:
        x = torch.as_tensor(reference.problem(problem, 11, 6), dtype=dtype)
        before, rows = x.clone(), Updates(x)
        found = mix(rows, make(setting).mix(rows, world.oracle())[0]).rows
        with case(setting):
            expected = loop(x.double().numpy(), setting)
            tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-12}
            np.testing.assert_allclose(found.numpy(), expected, **tolerance)
            assert found.dtype == dtype
            assert torch.equal(x, before)


class Given(Mixing):
    """Mixes by a matrix that is given."""

    def mix(self, updates, server):
        return torch.from_numpy(M), torch.from_numpy(SHARES)

    def n_mixed(self, n):
        return n + 1


class Told(Aggregator):
    """Weighs as it is told, and remembers what it saw."""

    def __init__(self, weights, trust=None):
        self.weights, self.trust = weights, trust

    def check(self, n, n_classes):
        self.checked = n

    def guarantee(self, n, n_classes):
        return f"no guarantee: {n}"

    def aggregate(self, updates, server):
        self.rows, self.shares = updates.rows, updates.data_weights
        weights = None if self.weights is None else torch.from_numpy(self.weights)
        update = updates.rows.sum(0) if weights is None else updates.combine(weights)
        trust = None if self.trust is None else torch.from_numpy(self.trust)
        return Aggregation(update, weights, {"seen": len(updates.rows)}, trust)


def aggregate(rule):
    return Given(rule).aggregate(Updates(torch.from_numpy(X)), world.oracle())


def divided(given):
    """Each combination's part, among its clients as they make it up."""
    found = np.zeros(4)
    for i in range(5):
        for j in range(4):
            if M[i].sum():
                found[j] += given[i] * M[i, j] / M[i].sum()
    return found


def test_the_rule_sees_the_combinations_and_their_shares():
    rule = Told(WEIGHTS)
    aggregate(rule)
    expected = [[sum(M[i, j] * X[j, k] for j in range(4)) for k in range(3)] for i in range(5)]
    np.testing.assert_allclose(rule.rows, expected, rtol=1e-14)
    np.testing.assert_allclose(rule.shares, SHARES, rtol=1e-14)


def test_weights_are_those_of_the_updates_as_sent():
    found = aggregate(Told(WEIGHTS))
    weights = [sum(WEIGHTS[i] * M[i, j] for i in range(5)) for j in range(4)]
    np.testing.assert_allclose(found.weights, weights, rtol=1e-14)
    np.testing.assert_allclose(found.update, sum(weights[j] * X[j] for j in range(4)), rtol=1e-13)
    assert found.diagnostics == {"seen": 5}


def test_trust_divides_what_a_combination_got_among_its_parts():
    """By the rule's weights, or by its trust where it says so; a row that is scaled down keeps its trust."""
    np.testing.assert_allclose(aggregate(Told(WEIGHTS)).trust, divided(WEIGHTS), rtol=1e-14)
    np.testing.assert_allclose(aggregate(Told(WEIGHTS, TRUST)).trust, divided(TRUST), rtol=1e-14)


def test_what_a_rule_believes_of_labels_is_about_clients():
    """Clipping leaves rows the clients'; mixing makes others of them."""
    updates, server = world.updates(), world.oracle()
    expected = Boba(2).aggregate(updates, server).label_distributions
    for clips in [Clipping(Boba(2), 1e9), Arc(Boba(2), 0)]:
        torch.testing.assert_close(clips.aggregate(updates, server).label_distributions, expected)
    assert Nnm(Boba(2), 2).aggregate(updates, server).label_distributions is None


def test_needs_what_the_rule_needs_of_the_server():
    for rule in [Nnm(Boba(2), 2), Clipping(Boba(2)), Arc(Boba(2), 2)]:
        assert rule.needs_server == "updates"
    assert Nnm(Given(Told(WEIGHTS)), 2).needs_server is None


def test_a_coordinate_rule_says_nothing_of_clients():
    found = aggregate(Told(None))
    assert found.weights is None
    assert found.trust is None


def test_the_rule_is_checked_for_the_combinations():
    rule = Told(WEIGHTS)
    mixing = Given(rule)
    mixing.check(4, 3)
    assert rule.checked == 5
    assert mixing.guarantee(4, 3) == "no guarantee: 5"


def test_a_rule_that_remembers_clients_is_refused_combinations_of_several():
    with pytest.raises(SettingError, match="Foolsgold needs to know who sent which update, got mixtures"):
        Given(Foolsgold()).check(4, 3)
    with pytest.raises(SettingError, match="Gas needs to know who sent which update, got mixtures"):
        Given(Gas(Monna(1, trusted=7), 1, 3)).check(4, 3)
    Clipping(Foolsgold(), 1.0).check(4, 3)  # which leaves every client by itself


@pytest.mark.parametrize(
    ("weights", "finite", "expected"),
    [
        ([0.1, 0.2, 0.7], [0, 2], [0.1, 0.0, 0.7]),
        ([0.0, 1.0, 0.0], [0, 2], [1.0, 0.0, 1.0]),
        ([0.3, 0.3, 0.4], [0, 1, 2], [0.3, 0.3, 0.4]),
    ],
)
def test_shares_of_the_finite_rows(weights, finite, expected):
    found = finite_shares(torch.tensor(weights, dtype=torch.float64), torch.tensor(finite))
    assert found.tolist() == expected
