"""A backdoored update, scaled."""

from dataclasses import replace

import torch

from lightning_fl.adversary.badnets import Badnets
from lightning_fl.adversary.model_replacement import ModelReplacement
from lightning_fl.contract import world
from lightning_fl.contract.images import pictures, seeing


def test_the_average_lands_on_the_backdoored_model():
    """Where the honest updates cancel, the mean of all n is the mean of the b poisoned ones."""
    honest = torch.tensor([[1.0, -2.0], [-1.0, 2.0], [0.0, 0.0]])
    poisoned = torch.tensor([[3.0, 1.0], [1.0, 2.0]])
    forged = ModelReplacement().finish(poisoned, 5, world.context())
    assert forged.tolist() == [[7.5, 2.5], [2.5, 5.0]]  # 5 / 2; not 5 / 3, n / h
    torch.testing.assert_close(torch.cat([honest, forged]).mean(0), torch.tensor([2.0, 1.5]))


def test_factor_and_length():
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    torch.testing.assert_close(ModelReplacement(50.0).finish(rows, 9, world.context()), 50 * rows)
    expected = torch.tensor([[6.0, 8.0], [3.0, 4.0]])  # shortened to 1, then scaled
    torch.testing.assert_close(ModelReplacement(10.0, 1.0).finish(rows, 9, world.context()), expected)
    torch.testing.assert_close(rows, torch.tensor([[3.0, 4.0], [0.3, 0.4]]))


def test_scales_what_badnets_sends():
    context = world.context()
    byzantine = replace(context.byzantine, samples=pictures(context.byzantine.samples))
    context = replace(context, model=seeing(context.model), byzantine=byzantine)
    plain = Badnets(3).attack(world.updates(), 3, context)
    scaled = ModelReplacement(size=3).attack(world.updates(), 3, context)
    torch.testing.assert_close(scaled, 5 * plain)  # 12 honest, 3 Byzantine: 15 / 3
