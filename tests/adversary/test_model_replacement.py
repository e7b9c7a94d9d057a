"""A backdoored update, scaled."""

from dataclasses import replace

import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.adversary.badnets import Badnets
from lightning_fl.adversary.model_replacement import ModelReplacement, model_replacement
from lightning_fl.contract import conf, world
from lightning_fl.contract.images import pictures, seeing


def test_the_average_lands_on_the_backdoored_model():
    """Where the honest updates cancel, the mean of all n is the mean of the b poisoned ones."""
    honest = torch.tensor([[1.0, -2.0], [-1.0, 2.0], [0.0, 0.0]])
    poisoned = torch.tensor([[3.0, 1.0], [1.0, 2.0]])
    forged = model_replacement(poisoned, n=5)
    assert forged.tolist() == [[7.5, 2.5], [2.5, 5.0]]  # 5 / 2; not 5 / 3, n / h
    torch.testing.assert_close(torch.cat([honest, forged]).mean(0), torch.tensor([2.0, 1.5]))


def test_factor_and_length():
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    torch.testing.assert_close(model_replacement(rows, 9, factor=50.0), 50 * rows)
    expected = torch.tensor([[6.0, 8.0], [3.0, 4.0]])  # shortened to 1, then scaled
    torch.testing.assert_close(model_replacement(rows, 9, factor=10.0, max_norm=1.0), expected)
    torch.testing.assert_close(rows, torch.tensor([[3.0, 4.0], [0.3, 0.4]]))


def test_the_class_scales_what_badnets_sends():
    context = world.context()
    byzantine = replace(context.byzantine, samples=pictures(context.byzantine.samples))
    context = replace(context, model=seeing(context.model), byzantine=byzantine)
    plain = Badnets(0, None, 0.5, 3).attack(world.updates(), 3, context)
    scaled = ModelReplacement(0, None, 0.5, 3, None, None).attack(world.updates(), 3, context)
    torch.testing.assert_close(scaled, 5 * plain)  # 12 honest, 3 Byzantine: 15 / 3


@pytest.mark.parametrize("setting", ["factor", "max_norm"])
def test_settings_out_of_range(setting):
    settings = {"target": 0, "source": None, "share": 0.5, "size": 3, "factor": None, "max_norm": None}
    with pytest.raises(SettingError, match=rf"{setting} must be above 0 and finite, or null, got 0.0"):
        ModelReplacement(**(settings | {setting: 0.0}))


def test_conf():
    attack = conf.make("adversary", "model_replacement")
    assert (attack.factor, attack.max_norm) == (None, None)
