from math import inf, isnan

import numpy as np
import pytest
import torch

from lightning_fl import SettingError, Updates
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.delayed_momentum import DelayedMomentum
from lightning_fl.aggregator.fldetector import (
    Fldetector,
    hessian_product,
    least_squares_in_runs,
    malicious,
    number_of_clusters,
)
from lightning_fl.aggregator.krum import Krum
from lightning_fl.aggregator.layerwise import Layerwise
from lightning_fl.aggregator.nnm import Nnm
from lightning_fl.aggregator.trimmed_mean import TrimmedMean
from tests.aggregator import reference_field as field
from tests.aggregator.server import Server

MOVES = np.array([[0.5, -0.2, 0.1], [-0.1, 0.4, 0.2]])
CHANGES = np.array([[0.9, -0.1, 0.3], [0.1, 1.1, 0.5]])
BEFORE = np.array([[1, 0, 0.5], [0, 1, 0.5], [1, 1, 0], [0.5, 0.5, 1]])
NOW = np.array([[1.3, 0.1, 0.2], [0.2, 1.3, 0.3], [-1.5, 2, 0.4], [0.9, 0.7, 0.9]])
DRAWN = np.array(
    [
        [0.05, 0.21, 0.33, 0.48, 0.62, 0.77, 0.93],
        [0.11, 0.18, 0.40, 0.55, 0.59, 0.83, 0.97],
        [0.02, 0.30, 0.36, 0.44, 0.70, 0.74, 0.88],
    ]
)
APART = np.array([0.10, 0.12, 0.11, 0.13, 0.40, 0.42, 0.09])
TOGETHER = np.array([0.10, 0.15, 0.20, 0.12, 0.18, 0.13, 0.165])


@pytest.mark.parametrize("pairs", [slice(0, 2), slice(1, 2), slice(0, 1)])
def test_the_hessian_is_that_of_bfgs(pairs):
    v = np.array([0.3, 0.1, -0.2])
    s, y = (torch.as_tensor(part[pairs]) for part in (MOVES, CHANGES))
    expected, _ = field.bfgs_product(MOVES[pairs], CHANGES[pairs], v)
    np.testing.assert_allclose(hessian_product(s, y, torch.as_tensor(v)), expected, rtol=1e-10)
    torch.testing.assert_close(hessian_product(s, y, s[-1]), y[-1])  # the secant equation, of H and not its inverse


def test_the_hessian_of_many_pairs(draw):
    a = torch.randn(30, 30, generator=draw, dtype=torch.float64)
    s = torch.randn(10, 30, generator=draw, dtype=torch.float64)
    y, v = s @ (a @ a.T + torch.eye(30)), torch.randn(30, generator=draw, dtype=torch.float64)
    expected, _ = field.bfgs_product(s.numpy(), y.numpy(), v.numpy())
    np.testing.assert_allclose(hessian_product(s, y, v), expected, rtol=1e-6)


def known(shares, window):
    """A rule that remembers two pairs and the rows, models and shares before."""
    rule = Fldetector(Average(), window)
    w_then = torch.as_tensor(-np.array([0.3, 0.1, -0.2]))
    rule.load_state_dict(
        {
            "own": {
                "rows": {i: [torch.as_tensor(row), w_then] for i, row in enumerate(BEFORE)},
                "pairs": [list(map(torch.as_tensor, pair)) for pair in zip(MOVES, CHANGES, strict=True)],
                "shares": dict(enumerate(shares)),
            },
            "rule": {},
        }
    )
    return rule


@pytest.mark.parametrize("window", [2, 3])
def test_scores_of_the_small_problem(window):
    product, _ = field.bfgs_product(MOVES, CHANGES, np.array([0.3, 0.1, -0.2]))
    errors = [field.length(before + product - now) for before, now in zip(BEFORE, NOW, strict=True)]
    shares = np.array(errors) / sum(errors)
    rule = known([[0.2, 0.1], [0.25, 0.2], [0.3, 0.5], [0.25, 0.2]], window)
    rule.aggregate(Updates(torch.as_tensor(NOW), ids=range(4)), Server(np.zeros(3)))
    found = rule._last["shares"]
    for i, earlier in enumerate([[0.2, 0.1], [0.25, 0.2], [0.3, 0.5], [0.25, 0.2]]):
        np.testing.assert_allclose(found[i], [*earlier, shares[i]][-window:], rtol=1e-9)
    assert np.argmax(shares) == 2


def test_who_was_not_there_is_not_judged():
    rule = known([[0.2]] * 4, 3)
    rows = torch.as_tensor(np.concatenate([NOW[:2], NOW[:1]]))
    rule.aggregate(Updates(rows, ids=[1, 0, 9]), Server(np.zeros(3)))
    found = rule._last["shares"]
    assert 9 not in found
    assert sum(found[i][-1] for i in (0, 1)) == pytest.approx(2 / 3)
    assert found[2] == [0.2]


@pytest.mark.parametrize("scores", [APART, TOGETHER])
def test_gap_statistics_of_the_small_problem(scores):
    count, w, _, _ = field.gap_statistics(scores, DRAWN, 4)
    given, drawn = torch.as_tensor(scores), torch.as_tensor(DRAWN)
    scaled = (given.sort().values - given.min()) / (given.max() - given.min())
    np.testing.assert_allclose(least_squares_in_runs(scaled, 4), w, atol=1e-12)
    assert number_of_clusters(given, drawn, 4) == count
    assert malicious(given, drawn, 4) == ([4, 5] if scores is APART else [])


def test_gap_statistics_of_many(draw):
    for _ in range(10):
        scores = torch.rand(8, generator=draw, dtype=torch.float64)
        drawn = torch.rand(5, 8, generator=draw, dtype=torch.float64)
        count, *_ = field.gap_statistics(scores.tolist(), drawn.numpy(), 5)
        assert number_of_clusters(scores, drawn, 5) == count


def test_equal_scores_and_lone_clients_are_nobody_s_fault():
    drawn = torch.as_tensor(DRAWN)
    assert malicious(torch.full((7,), 0.3).double(), drawn) == []
    assert malicious(torch.tensor([0.3]).double(), drawn[:, :1]) == []
    assert malicious(torch.tensor([0.0, 0, 0, 1, 1, 1, 1]).double(), drawn) == [3, 4, 5, 6]


def test_scores_that_differ_by_rounding_are_nobody_s_fault():
    """Groups a millionth apart are seen: attackers who have spoilt the prediction differ by as little."""
    drawn = torch.as_tensor(DRAWN)
    groups = torch.tensor([0.0, 0, 0, 1, 1, 1, 1]).double()
    assert malicious((1 + 1e-15 * groups) / 7, drawn) == []
    assert malicious((1 + 1e-6 * groups) / 7, drawn) == [3, 4, 5, 6]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("shared", [True, False])
def test_honest_clients_stay_whatever_rounding_makes_of_their_errors(dtype, shared):
    """Quadratic losses of one Hessian: errors are equal, or, where it is a multiple of the identity, all about 0."""
    for seed in range(10):
        draw = torch.Generator().manual_seed(seed)
        root = torch.randn(6, 6, generator=draw, dtype=dtype)
        hessian = root @ root.T / 6 + 0.1 * torch.eye(6, dtype=dtype) if shared else torch.eye(6, dtype=dtype)
        best, w = torch.randn(9, 6, generator=draw, dtype=dtype), torch.randn(6, generator=draw, dtype=dtype)
        rule = Fldetector(TrimmedMean(2), window=5, start=4)
        for t in range(12):
            found = rule.aggregate(Updates((w - best) @ hessian, ids=range(9)), Server(w.clone(), t))
            rule.on_train_batch_end(*[None] * 5)
            assert found.diagnostics["detected"] == 0
            w = w - 0.05 * found.update


def test_a_huge_row_does_not_excuse_its_own_error():
    """Client 0 sends 1e9 and a little noise, which the rounding of 1e9 would cover."""
    a = torch.randn(9, 4, generator=torch.Generator().manual_seed(1))
    draw, w, rule = torch.Generator().manual_seed(2), torch.zeros(4), Fldetector(TrimmedMean(2), start=4)
    for t in range(5):
        rows = w - a + 0.1 * torch.randn(9, 4, generator=draw)
        rows[0] = 1e9 * torch.tensor([0.0, 1, 1, 1]) + 100 * torch.randn(4, generator=draw)
        found = rule.aggregate(Updates(rows, ids=range(9)), Server(w, t))
        rule.on_train_batch_end(*[None] * 5)
        w = w - 0.1 * found.update
    assert found.accused.nonzero().flatten().tolist() == [0]


def play(rule, n_rounds, liars=(), start=0):
    """Clients whose gradients are w - a_i; liars send noise.  Gives the clients left and the rule."""
    draw = torch.Generator().manual_seed(1)
    a = torch.randn(9, 4, generator=draw, dtype=torch.float64)
    w, detected = torch.zeros(4, dtype=torch.float64), []
    rule.said = []
    for t in range(start + n_rounds):
        rows = w - a
        for i in liars:
            rows[i] += torch.randn(4, generator=draw, dtype=torch.float64)
        if t < start:
            continue
        rule.aggregate(Updates(rows - 5, ids=range(9)), Server(w, t))  # a trial
        found = rule.aggregate(Updates(rows, ids=range(9)), Server(w, t))
        rule.on_train_batch_end(*[None] * 5)
        detected.append(found.diagnostics["detected"])
        rule.said.append((found.suspicion.tolist(), found.accused))
        w = w - 0.1 * found.update
    return detected, rule


@pytest.mark.parametrize("inner", [Average, lambda: TrimmedMean(2), lambda: Nnm(Krum(2, "n-f-1"), 2)])
def test_who_sends_noise_is_found_and_stays_out(inner):
    """Honest gradients of quadratic losses are predicted exactly, whatever the others do."""
    detected, rule = play(Fldetector(inner(), start=5), 9, liars=(0, 7))
    assert detected == [0] * 5 + [2] * 4
    assert rule._remembered["excluded"] == [0, 7]
    assert all(isnan(score) for score in rule.said[0][0])  # there is nothing to predict from
    before, known = rule.said[4]
    assert known is None  # as long as nobody may be removed
    assert min(before[0], before[7]) > max(before[i] for i in range(9) if i not in (0, 7))
    assert all(accused.nonzero().flatten().tolist() == [0, 7] for _, accused in rule.said[5:])
    assert rule.said[-1][0][0] == rule.said[-1][0][7] == inf
    assert getattr(rule.rule, "f", 2) == 2  # as it was told
    detected, rule = play(Fldetector(inner(), start=5, after="round"), 9, liars=(0, 7))
    assert detected[5:] == [2] * 4
    assert rule._remembered["excluded"] == []


def test_the_others_are_aggregated_with_a_lower_f():
    _, rule = play(Fldetector(TrimmedMean(2), start=5), 9, liars=(0, 7))
    rows = torch.arange(36.0, dtype=torch.float64).view(9, 4) ** 2
    found = rule.aggregate(Updates(rows, ids=range(9)), Server(torch.zeros(4).double(), 9))
    torch.testing.assert_close(found.update, rows[[1, 2, 3, 4, 5, 6, 8]].mean(0))
    weighted = Fldetector(Average())
    weighted.load_state_dict(rule.state_dict())
    found = weighted.aggregate(Updates(rows, ids=range(9)), Server(torch.zeros(4).double(), 9))
    assert found.weights.tolist() == pytest.approx([0, *[1 / 7] * 6, 0, 1 / 7])


def test_its_rule_needs_enough_of_those_left():
    rule = Fldetector(Krum(1))
    rule.load_state_dict({"own": {"excluded": [0, 1, 2]}, "rule": {}})
    with pytest.raises(SettingError, match="fldetector needs 3 updates for its rule, got 1 of clients"):
        rule.aggregate(Updates(torch.eye(4), ids=range(4)), Server(torch.zeros(4)))


def test_each_tensor_s_rule_is_told_the_lower_f():
    """Also one that was copied in a round in which somebody was removed, as after a restart."""
    zeros, rows = torch.zeros(4).double(), torch.arange(36.0, dtype=torch.float64).view(9, 4) ** 2
    rule = Fldetector(Layerwise(TrimmedMean(2)))
    rule.load_state_dict({"own": {"excluded": [0, 7]}, "rule": {}})
    for _ in range(2):
        found = rule.aggregate(Updates(rows, ids=range(9)), Server(zeros, 9))
        torch.testing.assert_close(found.update, rows[[1, 2, 3, 4, 5, 6, 8]].mean(0))
    rule.load_state_dict({"own": {}, "rule": {}})
    found = rule.aggregate(Updates(rows, ids=range(9)), Server(zeros, 9))
    torch.testing.assert_close(found.update, rows[2:7].mean(0))


def test_an_update_too_long_to_measure_has_the_whole_error():
    rule = known([[0.2]] * 4, 3)
    rows = torch.as_tensor(NOW).float()
    rows[1] = 3e38
    w_then, row = rule._remembered["rows"][1][1], torch.full((3,), -3e38)
    rule._remembered["rows"][1] = [row, w_then]
    rule.aggregate(Updates(rows, ids=range(4)), Server(np.zeros(3, np.float32)))
    assert [rule._last["shares"][i][-1] for i in range(4)] == [0, 1, 0, 0]


def test_a_rule_that_recalls_who_was_removed_is_refused():
    with pytest.raises(SettingError, match="Nnm goes by earlier ones, too"):
        Fldetector(Nnm(DelayedMomentum(Average()), 1))


def test_clusters_have_the_least_sum_of_squares():
    """{0 x 4}, {1 x 3, 2 x 3} have 1.5 in all; {0 x 4, 1 x 3}, {2 x 3} 1.71, though per client less."""
    drawn = torch.linspace(0, 1, 20).double().view(2, 10)
    assert malicious(torch.tensor([0.0] * 4 + [1.0] * 3 + [2.0] * 3).double(), drawn) == [4, 5, 6, 7, 8, 9]
