"""How often a trigger works."""

import pytest
import torch
from torchmetrics import MetricCollection

from lightning_fl import SettingError
from lightning_fl.metric.attack_success_rate import AttackSuccessRate, attack_success_rate


def slow_rate(predictions, goals, targets):
    """Of the samples whose class is not the goal, the share taken for the goal."""
    counted = [(p, g) for p, g, y in zip(predictions, goals, targets, strict=True) if g != y]
    return sum(p == g for p, g in counted) / len(counted)


def problem(draw, k=80, c=4):
    logits, targets = torch.randn(k, c, generator=draw), torch.randint(0, c, (k,), generator=draw)
    goals = torch.randint(0, c, (k,), generator=draw)
    return logits, goals, targets, slow_rate(logits.argmax(1).tolist(), goals.tolist(), targets.tolist())


def test_by_hand():
    # Of eight, three are of class 6 and do not count, though two of them are taken for it; two of the other five are.
    targets = torch.tensor([6, 1, 6, 2, 3, 6, 4, 0])
    predictions = torch.tensor([6, 6, 6, 2, 6, 1, 4, 1])
    assert attack_success_rate(predictions, 6, targets).item() == pytest.approx(0.4)  # with class 6 it were 4/8


def test_goals_may_differ():
    # y + 1 mod 3: hits are 0 -> 1 and 2 -> 0.
    targets, predictions = torch.tensor([0, 1, 2, 2]), torch.tensor([1, 1, 0, 2])
    assert attack_success_rate(predictions, (targets + 1) % 3, targets).item() == pytest.approx(0.5)


@pytest.mark.parametrize("seed", range(5))
def test_agrees_with_a_loop(seed):
    logits, goals, targets, expected = problem(torch.Generator().manual_seed(seed))
    assert attack_success_rate(logits.argmax(1), goals, targets).item() == pytest.approx(expected)
    metric = AttackSuccessRate()
    for part in torch.arange(80).split(7):
        metric.update(logits[part], goals[part], targets[part])
    assert metric.compute().item() == pytest.approx(expected)
    metric.reset()
    counted = goals != targets
    metric.update(logits.argmax(1)[counted], goals[counted])
    assert metric.compute().item() == pytest.approx(expected)


def test_nothing_to_count():
    with pytest.raises(SettingError, match="needs a sample whose true class is not the goal, got none"):
        attack_success_rate(torch.tensor([1, 0]), 1, torch.tensor([1, 1]))
    metric = AttackSuccessRate()
    metric.update(torch.tensor([1, 0]), torch.tensor([1, 1]), torch.tensor([1, 1]))
    assert metric.compute().isnan()


def test_it_lives_in_a_collection_and_less_is_better(draw):
    logits, goals, targets, expected = problem(draw)
    metrics = MetricCollection({"success_rate": AttackSuccessRate()})
    metrics.update(logits, goals, targets)
    assert metrics.compute()["success_rate"].item() == pytest.approx(expected)
    assert AttackSuccessRate.higher_is_better is False
    assert not metrics.state_dict()
