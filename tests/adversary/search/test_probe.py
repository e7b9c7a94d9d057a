"""What a rule is asked is what the server will see."""

from math import inf

import pytest
import torch

from lightning_fl.adversary.search.probe import Probe, climb
from lightning_fl.aggregator.trimmed_mean import TrimmedMean
from lightning_fl.contract import world
from lightning_fl.updates.products import gram_matrix

H, B, D = 12, 3, 20


def rule(updates):
    return TrimmedMean(B).aggregate(updates, world.oracle()).update


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kinds", [4, 5])
def test_rules_see_what_the_server_will_see(kinds, monkeypatch):
    """Also inner products with server rows, some twice; for a few different ones d is read once each."""
    honest, directions, server = 0.5 + random(H, D), random(3, D, seed=1), random(5, D, seed=2)
    weights = torch.arange(1.0, H + 1)
    asked, read = [], []
    monkeypatch.setattr("lightning_fl.updates.updates.gram_matrix", lambda *x: read.append(1) or gram_matrix(*x))

    def rule(updates):
        assert torch.equal(updates.rows[:H], honest)
        assert (updates.rows[H:] == updates.rows[H]).all()
        # A Byzantine client counts as the average honest one.
        shares = torch.cat([weights, torch.full((B,), weights.mean())]).double()
        torch.testing.assert_close(updates.data_weights, shares / shares.sum())
        asked.append(len(asked))
        extra = server[:0] if asked[-1] % 2 else server[asked[-1] // 2 % kinds :]  # always a new tensor object
        gram = updates.gram_with(extra) if len(extra) else updates.gram
        rows = torch.cat([updates.rows, extra]).double()
        error = (gram - rows @ rows.T).abs() / (rows.norm(dim=1)[:, None] * rows.norm(dim=1))
        assert error.max() <= 1e-6
        assert torch.equal(updates.gram, gram[: H + B, : H + B])
        return updates.rows.mean(0)

    probe = Probe(honest, B, rule, directions, weights)
    for t in range(48):
        coefficients = [1.0, -0.3 * t, float(t % 3)]
        answer = probe.ask(coefficients)
        row = coefficients[0] * directions[0] + coefficients[1] * directions[1] + coefficients[2] * directions[2]
        torch.testing.assert_close(probe.forged(coefficients), row)
        torch.testing.assert_close(answer, (honest.sum(0) + B * row) / (H + B))
    assert len(asked) == 48
    assert (len(read) == 4) == (kinds == 4)


def test_harm_of_both_kinds():
    """Honest mean by weights (2.5, 0); the answer is what is sent, (1, 2)."""
    honest = torch.tensor([[1.0, 0.0], [3.0, 0.0]])
    probe = Probe(honest, 1, lambda updates: updates.rows[2], torch.eye(2), torch.tensor([1.0, 3.0]))
    assert probe.harm([1.0, 2.0]) == pytest.approx(2.5)
    assert probe.harm([1.0, 2.0], "ascent") == pytest.approx(-2.5)
    assert probe.harm([inf, 2.0]) == inf


def test_harm_of_a_combination_is_that_of_its_vector():
    """Which is never computed; with a row of the server and without one, by data weights."""
    honest, directions, server = 3 + random(H, D), random(2, D, seed=1), random(1, D, seed=2)
    weights, shares = torch.arange(1.0, H + 1), random(H + B, seed=3)
    rows = torch.cat([honest, (directions[0] - 2 * directions[1]).expand(B, -1)]).double()
    mean = weights.double() @ honest.double() / weights.sum()
    for extra, share in [(None, None), (server, torch.tensor([0.7]))]:
        probe = Probe(
            honest, B, lambda updates, e=extra, s=share: updates.combination(shares, e, s), directions, weights
        )
        answer = shares.double() @ rows + (0 if share is None else 0.7 * server[0].double())
        assert probe.harm([1.0, -2.0]) == pytest.approx((answer - mean).norm().item(), rel=1e-6)
        assert probe.harm([1.0, -2.0], "ascent") == pytest.approx(-(answer @ mean).item(), rel=1e-6)


def test_honest_rows_stay_as_they_are():
    honest = world.honest_updates()
    Probe(honest, 2, lambda updates: updates.rows.mean(0), honest[:1]).ask([5.0])
    assert torch.equal(honest, world.honest_updates())


@pytest.mark.parametrize("damage", ["distance", "ascent"])
def test_an_estimate_is_near_and_says_whether_it_is_one(damage, monkeypatch):
    monkeypatch.setattr("lightning_fl.adversary.search.probe._COLUMNS", 250)
    honest = (0.3 + random(H, 1000)) * torch.exp(random(1000, seed=3))
    directions = torch.stack([honest.mean(0), honest.std(0)])
    shares = torch.full((H + B,), 1 / (H + B))
    for kind, estimated, within in [(rule, True, 0.1), (lambda updates: updates.combination(shares), False, 1e-9)]:
        probe = Probe(honest, B, kind, directions)
        for c in ([1.0, 0.5], [1.0, -3.0]):
            assert probe.estimate(c, damage) == pytest.approx(probe.harm(c, damage), rel=within)
        assert probe.estimated == estimated
        assert not probe.guessed


def test_a_rule_that_makes_nothing_of_a_sample_is_asked_about_all_columns(monkeypatch):
    monkeypatch.setattr("lightning_fl.adversary.search.probe._COLUMNS", 50)
    asked = []

    def rule(updates):
        asked.append(updates.held.partial)
        middle = updates.by_column(lambda rows: rows.mean(0))
        return middle / middle.norm()  # the norm of a part, NaN, is not that of all

    probe = Probe(random(H, 1000), B, rule, random(2, 1000, seed=1))
    found = [probe.estimate([1.0, t]) for t in (0.5, 2.0)]
    assert asked == [True, False, False]
    assert found == [probe.harm([1.0, t]) for t in (0.5, 2.0)]


def test_columns_sorted_anew_are_the_same():
    probe = Probe(random(H, D), B, rule, random(2, D, seed=1))
    for c in ([1.0, 0.5], [-4.0, 0.0]):
        assert probe.harm(c, once=True) == pytest.approx(probe.harm(c), rel=1e-6)


def test_a_climb_tries_these_points():
    """Doubling steps to the first failure at 7, then 0.8 of the step each time, whether it succeeds or not."""
    tried = []

    def value(t):
        tried.append(t)
        return t if t <= 6 else -1.0

    assert climb(value, 7, 0.0, 1.0, 0.8) == pytest.approx(5.56)
    assert tried == pytest.approx([0, 1, 3, 7, 6.2, 5.56, 7.608])
    assert climb(value, 1, 2.0, 1.0, 0.8) == 2


def test_a_climb_does_not_move_by_rounding():
    """On a plateau the last digit of the value is another on another machine."""
    assert climb(lambda t: 0.1756120152586839 + 1e-16 * t, 7, 0.0, 1.0, 0.5) == 0
    assert climb(lambda t: -inf if t < 2 else 1.0, 7, 0.0, 1.0, 0.5) == climb(lambda t: float(t >= 2), 7, 0.0, 1.0, 0.5)
