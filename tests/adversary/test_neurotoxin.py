"""A backdoor in the coordinates that others leave alone."""

from dataclasses import replace

import pytest
import torch

from lightning_fl.adversary.badnets import Badnets
from lightning_fl.adversary.neurotoxin import Neurotoxin
from lightning_fl.contract import world
from lightning_fl.contract.images import pictures, seeing


def neurotoxin(updates, previous, top, max_norm=None):
    """What is made of these updates, of ten clients, after that aggregate."""
    return Neurotoxin(top, max_norm).finish(updates, 10, replace(world.context(), previous_update=previous))


def slow_neurotoxin(updates, previous, top, max_norm):
    """Row by row: the largest |coordinates| of the previous aggregate become 0, then the norm is bounded."""
    k = round(top * len(previous))
    order = sorted(range(len(previous)), key=lambda j: (-abs(previous[j]), j))
    rows = []
    for update in updates:
        row = [0.0 if j in order[:k] else x for j, x in enumerate(update)]
        length = sum(x * x for x in row) ** 0.5
        rows.append([x * min(1.0, max_norm / length) if length else x for x in row])
    return rows


def test_by_hand():
    # The largest two of |(-3, .5, 2, -1, 0)| are at 0 and 2: not 2 and 1 (signed), not those of the update itself.
    rows = torch.tensor([[1.0, 3.0, 9.0, 4.0, 0.0]])
    previous = torch.tensor([-3.0, 0.5, 2.0, -1.0, 0.0])
    assert neurotoxin(rows, previous, top=0.4).tolist() == [[0.0, 3.0, 0.0, 4.0, 0.0]]
    shortened = neurotoxin(rows, previous, top=0.4, max_norm=0.2)  # clipped after the projection
    torch.testing.assert_close(shortened, torch.tensor([[0.0, 0.12, 0.0, 0.16, 0.0]]))
    assert rows[0, 0] == 1


@pytest.mark.parametrize("top", [0.0, 0.05, 0.3, 0.9])
def test_agrees_with_a_loop(top, draw):
    rows = torch.randn(4, 30, generator=draw, dtype=torch.float64)
    previous = torch.randn(30, generator=draw, dtype=torch.float64)
    expected = slow_neurotoxin(rows.tolist(), previous.tolist(), top, 2.0)
    torch.testing.assert_close(neurotoxin(rows, previous, top, 2.0), torch.tensor(expected, dtype=torch.float64))


def test_of_equal_coordinates_the_first():
    assert neurotoxin(torch.ones(1, 4), torch.tensor([1.0, -1.0, 1.0, 1.0]), top=0.5).tolist() == [[0.0, 0.0, 1.0, 1.0]]


def test_nothing_is_left_out_in_the_first_round():
    rows = torch.tensor([[3.0, 4.0]])
    assert torch.equal(neurotoxin(rows, None, top=0.5), rows)
    torch.testing.assert_close(neurotoxin(rows, None, top=0.5, max_norm=1.0), torch.tensor([[0.6, 0.8]]))


def test_projects_what_badnets_sends():
    context = world.context()
    byzantine = replace(context.byzantine, samples=pictures(context.byzantine.samples))
    previous = torch.arange(9.0)
    context = replace(context, model=seeing(context.model), byzantine=byzantine, previous_update=previous)
    plain = Badnets(3).attack(world.updates(), 3, context)
    forged = Neurotoxin(top=0.3, size=3).attack(world.updates(), 3, context)
    assert not forged[:, 6:].any()
    assert torch.equal(forged[:, :6], plain[:, :6])
