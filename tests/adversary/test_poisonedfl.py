from copy import deepcopy
from dataclasses import replace
from math import comb

import numpy as np
import pytest
import torch
from torch import nn

from lightning_fl import Updates, seeding
from lightning_fl.adversary.poisonedfl import Poisonedfl, quantile_of_signs
from lightning_fl.contract import world
from lightning_fl.round import Round
from tests.adversary import reference


@pytest.mark.parametrize("d", [1, 2, 4, 10, 20, 99, 100])
def test_how_many_signs_agree_by_chance(d):
    exact = next(k for k in range(d + 1) if sum(comb(d, i) for i in range(k + 1)) / 2**d >= 0.99)
    assert quantile_of_signs(d) == exact


def test_how_many_of_a_million_signs_agree_by_chance():
    """About 2.326 standard deviations above the mean."""
    assert quantile_of_signs(1_204_682) == pytest.approx(602_341 + 2.3263 * 1_204_682**0.5 / 2, abs=2)


@pytest.mark.parametrize("a", [None, [0.1, -0.2, 0.05, -0.1], [0.2, -0.4, 0.1, -0.2]])
def test_the_wished_movement_of_the_small_problem(a):
    s, h = np.array([1.0, -1, 1, 1]), np.array([0.3, -0.1, 0.2, -0.4])
    expected = reference.poisonedfl_round(s, h, None if a is None else np.array(a), 8.0)
    found = Poisonedfl().forged(
        torch.as_tensor(s), torch.as_tensor(h), None if a is None else torch.tensor(a).double(), 8.0
    )
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert found.norm().item() == pytest.approx(8 * 0.3**0.5, rel=1e-6)


def test_looking_at_the_movement():
    """Of 10 signs 9 follow, which 98.9 % of chances are below, or 10."""
    s = torch.tensor([1.0, -1, 1, 1, -1, 1, -1, -1, 1, 1])
    w = torch.full((10,), 0.4)
    total = torch.tensor([0.1, -0.2, 0.3, 0.1, -0.1, 0.2, -0.3, 0.1, 0.2, 0.0])
    attack = Poisonedfl()
    assert quantile_of_signs(10) == 9
    assert attack.look(s, total, w, 8.0) == 8.0
    assert attack.look(s, total.index_fill(0, torch.tensor([1]), 0.2), w, 8.0) == pytest.approx(5.6)
    assert attack.look(s, total.index_fill(0, torch.tensor([1]), 0.2), w, 0.7) == 0.7  # 0.49 is below the least


class Plain(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.w = nn.Parameter(torch.as_tensor(w).clone())


def play(attack, honest, n_rounds, rate=0.1, first=0, w=None):
    """Plain averages with one forged row."""
    w = torch.zeros(honest.shape[1]).double() if w is None else w
    found = []
    for t in range(first, first + n_rounds):
        context = replace(world.context(), model=Plain(w), round=Round(t, rate, 0))
        if attack.attacks_in(t):
            attack.attack(Updates(honest * 7), 1, context)  # a trial
            forged = attack.attack(Updates(honest), 1, context)[0]
        else:
            attack.watch(Updates(honest), context)
            forged = honest[0]
        attack.on_train_batch_end()
        found.append((forged, w, attack._remembered["factor"]))
        w = w - rate * torch.cat([honest, forged[None]]).mean(0)
    return found, w


@pytest.mark.parametrize("honest", [[[1, 2, -1, 0.5], [1, 1, 1, 1]], [[1, 2, -1, 0.5], [1, 1, 0.5, 1]]])
def test_whole_runs(honest):
    honest = torch.tensor(honest).double()
    s = torch.randn(4, generator=seeding.generator(0, "poisonedfl")).sign().numpy()
    expected = reference.poisonedfl(honest.numpy(), s, 5, 0.1, 8.0, 2)
    found, _ = play(Poisonedfl(period=2), honest, 5)
    for (row, w, c), (forged, model, factor) in zip(expected, found, strict=True):
        np.testing.assert_allclose(forged, row, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(model, w, rtol=1e-9, atol=1e-12)
        assert factor == pytest.approx(c)
    assert not found[0][0].any()
    assert found[1][0].any()


@pytest.mark.parametrize(
    ("window", "shrinks"),
    [({"every": 2, "from_round": 1}, False), ({"every": 3}, True), ({"from_round": 3, "to_round": 5}, True)],
)
def test_rounds_that_are_not_attacked_are_watched(window, shrinks):
    """The model's last movement is known, and c shrinks on time."""
    honest = torch.tensor([[1, 2, -1, 0.5], [1, 1, 0.5, 1]]).double()
    s = torch.randn(4, generator=seeding.generator(0, "poisonedfl")).sign().numpy()
    attack = Poisonedfl(period=2, **window)
    expected = reference.poisonedfl(honest.numpy(), s, 9, 0.1, 8.0, 2, attack.attacks_in)
    found, _ = play(attack, honest, 9)
    for (row, w, c), (sent, model, factor) in zip(expected, found, strict=True):
        np.testing.assert_allclose(sent, row, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(model, w, rtol=1e-9, atol=1e-12)
        assert factor == pytest.approx(c)
    assert (found[-1][2] < 8) == shrinks


def test_it_goes_on_from_a_checkpoint():
    honest = torch.randn(3, 20, generator=torch.Generator().manual_seed(0)).double()
    whole, _ = play(Poisonedfl(period=2), honest, 7)
    attack, later = Poisonedfl(period=2), Poisonedfl(period=2)
    _, w = play(attack, honest, 4)
    later.load_state_dict(deepcopy(attack.state_dict()))
    found, _ = play(later, honest, 3, first=4, w=w)
    for (one, _, c), (other, _, factor) in zip(whole[4:], found, strict=True):
        assert torch.equal(one, other)
        assert c == factor


def test_the_signs_are_the_run_s():
    honest = torch.ones(3, 40).double()
    rows = []
    for seed in (0, 1, 0):
        attack = Poisonedfl()
        for t, w in enumerate([torch.zeros(40), torch.ones(40)]):
            context = replace(world.context(), model=Plain(w.double()), round=Round(t, 0.1, seed))
            rows.append(attack.attack(Updates(honest), 2, context))
            attack.on_train_batch_end()
    assert torch.equal(rows[1], rows[5])
    assert not torch.equal(rows[1], rows[3])
    assert torch.equal(rows[1][0], rows[1][1])
