import numpy as np
import pytest
import torch

from lightning_fl import Updates
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.geometric_median import GeometricMedian
from lightning_fl.aggregator.median import Median
from lightning_fl.aggregator.step_clipping import StepClipping
from tests.aggregator import reference_field as field
from tests.aggregator.server import Server

ROUNDS = [
    np.array([[1.0, 0], [3, 4], [-1, 1]]),
    np.array([[2.0, 2], [1, 1], [-9, 12]]),
    np.array([[0.0, 1], [1, 0], [4, 4]]),
]


def play(rule, rounds, rate, w=None):
    """The answers and models of the rounds, each after a trial call."""
    w, found = torch.zeros(rounds[0].shape[1]).double() if w is None else w, []
    for x in rounds:
        rule.aggregate(Updates(torch.as_tensor(x) - 9), Server(w))
        answer = rule.aggregate(Updates(torch.as_tensor(x)), Server(w)).update
        rule.on_train_batch_end(*[None] * 5)
        w = w - rate * answer
        found.append((answer, w))
    return found


@pytest.mark.parametrize(
    ("inner", "loop", "factor", "rate"),
    [
        (Average(), lambda x: x.mean(0), 1.0, 0.5),
        (Average(), lambda x: x.mean(0), 10.0, 0.1),
        (Median("mean"), lambda x: np.median(x, axis=0), 1.0, 0.5),
    ],
)
def test_small_problem(inner, loop, factor, rate):
    expected = field.clipped_by_step(ROUNDS, rate, factor, loop)
    for (_, g, w), (answer, model) in zip(expected, play(StepClipping(inner, factor), ROUNDS, rate), strict=True):
        np.testing.assert_allclose(answer, g, rtol=1e-12)
        np.testing.assert_allclose(model, w, rtol=1e-12)


def test_literal():
    """g_1 = (1, 5/3) moves the model by half of it, sqrt(34)/6, and no difference is longer in the next round."""
    (g, _), (after, _), _ = play(StepClipping(Average()), ROUNDS, 0.5)
    np.testing.assert_allclose(g, [1, 5 / 3])
    limit = 34**0.5 / 6
    moved = [np.array([1, 1 / 3]), np.array([0, -2 / 3]) / 1, np.array([-10, 31 / 3])]
    moved = [v * min(1, limit / np.linalg.norm(v)) for v in moved]
    np.testing.assert_allclose(after - g, sum(moved) / 3)


def test_a_majority_of_a_round_moves_it_by_the_limit_at_most(draw):
    x = torch.randn(5, 6, generator=draw).double()
    rule = StepClipping(GeometricMedian())
    (g, w), (after, w_after) = play(rule, [x, x], 0.1)
    limit = (w_after - w).norm()
    lies = x.clone()
    lies[:4] = 1e6
    ((last, _),) = play(rule, [lies], 0.1, w_after)
    assert (last - after).norm() <= limit * (1 + 1e-6)
    assert GeometricMedian()(lies).norm() > 1e5
    assert g.norm() > 0


def test_after_a_step_of_length_0_the_last_limit_stays():
    rule = StepClipping(Average())
    still = [(a, w) for a, w in play(rule, ROUNDS[:2], 0.5)][-1]
    rule.aggregate(Updates(torch.as_tensor(ROUNDS[2])), Server(still[1]))
    limit = rule._last["limit"]
    rule.on_train_batch_end(*[None] * 5)
    found = rule.aggregate(Updates(torch.as_tensor(ROUNDS[2]) * 5), Server(still[1])).update
    assert rule._last["limit"] == limit > 0
    assert not torch.allclose(found, still[0])
