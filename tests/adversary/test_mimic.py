from dataclasses import replace

import numpy as np
import pytest
import torch

from lightning_fl import Updates
from lightning_fl.adversary.mimic import Direction, Mimic, MimicLearned
from lightning_fl.contract import world
from lightning_fl.round import Round
from tests.adversary import reference

HONEST = torch.tensor([[1.0, 0.0], [3.0, 2.0]])


def test_copies_its_target():
    assert Mimic(1)(HONEST, 2).tolist() == [[3.0, 2.0]] * 2
    assert Mimic()(HONEST, 1).tolist() == [[1.0, 0.0]]


def copied(attack, honest, index=0, ids=None):
    """The number of the row that is copied in a round."""
    context = replace(world.context(), round=Round(index, 0.1, 0), honest_ids=ids)
    forged = attack.attack(Updates(honest), 2, context)
    (row,) = [i for i, row in enumerate(honest) if torch.equal(row, forged[0])]
    assert torch.equal(forged[0], forged[1])
    return row


def learned(z, rounds):
    direction = Direction(torch.as_tensor(z, dtype=torch.float64), torch.zeros(len(z), dtype=torch.float64))
    for honest in rounds:
        rows = Updates(torch.from_numpy(honest))
        direction = direction.learn(rows).choose(rows, range(len(honest)))
        yield direction.z.numpy(), direction.target


def test_known_answers():
    """With the deviations from last round's mean (0 at first) z would be (0.43, 0.90), with u not at unit length in the
    second round (0.32, 0.95)."""
    rounds = [reference.X[:6], reference.X[:6][::-1] + np.array([0.3, -0.1])]
    (first, target), (second, other) = learned([0.6, 0.8], rounds)
    np.testing.assert_allclose(first, [0.41000420, 0.91208363], atol=1e-8)
    np.testing.assert_allclose(second, [0.37010377, 0.92899042], atol=1e-8)
    assert (target, other) == (4, 1)


@pytest.mark.parametrize("name", ["random", "tied", "rank-deficient", "offset"])
def test_agrees_with_the_loop(name):
    rounds = [reference.problem(name) * (1 + t) + t for t in range(4)]
    z = reference.problem("random", 1)[0]
    expected = reference.mimic_rounds(z, rounds)
    for (ours, target), (slow_z, slow_target) in zip(learned(z, rounds), expected, strict=True):
        np.testing.assert_allclose(ours, slow_z, atol=1e-8)
        assert target == slow_target


def test_equal_updates_teach_no_direction():
    start = Direction(torch.tensor([0.6, 0.8]), torch.zeros(2))
    after = start.learn(Updates(torch.ones(3, 2)))
    assert after.z.tolist() == start.z.tolist()
    assert (after.mean.tolist(), after.rounds) == ([1.0, 1.0], 1)


@pytest.mark.parametrize("scale", [1e-35, 1e-20, 1e-12, 1.0, 1e10, 1e18, 1e30])
def test_a_direction_has_no_unit(scale):
    """The example of `Direction.learn` in any unit, though u is quadratic in it."""
    start = Direction(torch.tensor([0.6, 0.8]), torch.zeros(2))
    assert start.learn(Updates(scale * torch.tensor([[1.0, 1.0], [3.0, 1.0]]))).z.tolist() == [1.0, 0.0]


def rows_along(*places):
    """Rows on the first axis, whose direction is learned at once, and a bit beside it."""
    places = torch.tensor(places)
    return torch.stack([places, torch.zeros(len(places))], dim=1)


def end(attack):
    attack.on_train_batch_end(None, None, None, None, 0)


def test_after_the_warm_up_the_last_target_stays():
    attack = MimicLearned(warm_up=1)
    first = rows_along(0.0, 5.0, 2.0, -5.5)
    target = copied(attack, first, 0, ids=[7, 3, 9, 4])
    assert target in (1, 3)  # the learned direction has either sign
    end(attack)
    client, other = ([7, 3, 9, 4][i] for i in (target, 4 - target))
    assert copied(attack, rows_along(9.0, -9.0, 0.1), 1, ids=[other, 11, client]) == 2
    end(attack)
    # While the target is away, the one who is farthest along z now stands in.
    sign = 1 if target == 1 else -1
    assert copied(attack, rows_along(1.0, sign * 8.0, 2.0), 2, ids=[7, 9, other]) == 1
    end(attack)
    assert copied(attack, rows_along(9.0, -9.0, 0.1), 3, ids=[other, 11, client]) == 2


def test_without_an_end_of_the_warm_up_it_learns_on():
    rounds = [world.honest_updates(seed=t) for t in range(6)]
    start = torch.randn(world.D, generator=world.context().generator("mimic"))
    expected = [
        target for _, target in reference.mimic_rounds(start.double().numpy(), [r.double().numpy() for r in rounds])
    ]
    attack, found = MimicLearned(warm_up=None), []
    for t, honest in enumerate(rounds):
        found.append(copied(attack, honest, t))
        end(attack)
    assert found == expected
    assert len(set(found)) > 1


def test_a_broken_honest_update_teaches_nothing_and_is_not_copied():
    attack, spared = MimicLearned(), MimicLearned()
    rounds = [world.honest_updates(seed=t) for t in range(3)]
    broken = rounds[1].clone()
    broken[4, 0] = torch.nan
    targets = []
    for honest in [rounds[0], broken, rounds[2]]:
        targets.append(copied(attack, honest, 0))
        end(attack)
    assert targets[:2] == [copied(spared, rounds[0], 0)] * 2
    end(spared)
    assert copied(spared, rounds[2], 0) == targets[2]
    assert copied(MimicLearned(), broken, 0) != 4
