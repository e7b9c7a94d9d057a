from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.adversary.lie import lie_factor
from lightning_fl.adversary.rop import Rop, rop
from lightning_fl.contract import world
from tests.adversary import reference

HC, U = torch.from_numpy(reference.HC), torch.tensor([1.0, 0.0], dtype=torch.float64)


@pytest.mark.parametrize(("angle", "row"), [(90.0, [0.55389399, 1.05825176]), (180.0, [-0.43325176, 0.04556065])])
def test_known_answers(angle, row):
    """At 90 degrees the perturbation is across the reference (0.9133, 0.0117), not across the mean."""
    np.testing.assert_allclose(rop(HC, 2, U, 1.0, angle), [row] * 2, atol=1e-8)


@pytest.mark.parametrize("angle", [0.0, 60.0, 90.0, 180.0])
@pytest.mark.parametrize("name", reference.PROBLEMS)
def test_agrees_with_the_loop(name, angle):
    x = reference.problem(name)
    u = reference.problem("random", 1)[0]
    forged = rop(torch.from_numpy(x), 2, torch.from_numpy(u), 3.0, angle, 0.2, 0.7)
    np.testing.assert_allclose(forged, [reference.rop(x, u, 3.0, angle, 0.2, 0.7)] * 2, rtol=1e-9, atol=1e-12)


def test_in_the_first_round_the_mean_stands_in_for_the_last_update():
    mean = HC.mean(0)
    torch.testing.assert_close(rop(HC, 2, None, 1.0), rop(HC, 2, mean, 1.0))
    torch.testing.assert_close((rop(HC, 1, None, 1.0)[0] - mean) @ mean, torch.zeros((), dtype=torch.float64))


def test_directions_that_do_not_exist_count_as_0():
    ones = torch.ones(3, 5)
    torch.testing.assert_close(rop(ones, 1, None, 9.0, 90.0), ones[:1])  # nothing of the ones lies across them
    torch.testing.assert_close(rop(ones, 1, None, 5**0.5, 180.0), 0 * ones[:1])
    torch.testing.assert_close(rop(0 * ones, 1, None, 5**0.5, 90.0), ones[:1])


def test_a_negative_factor_of_lie_counts_as_0():
    """Of one attacker among four clients it is -0.43: at 180 degrees that would be a push forwards."""
    x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
    torch.testing.assert_close(rop(x, 1, None, None, 180.0), torch.tensor([[2.0, 0.0]]))


def test_a_factor_of_0_moves_nothing():
    """LIE's own would be 0.25."""
    torch.testing.assert_close(rop(HC.repeat(2, 1)[:10], 3, U, 0.0)[0], (U + HC.repeat(2, 1)[:10].mean(0)) / 2)


def test_refuses_settings_out_of_range():
    with pytest.raises(SettingError, match=r"factor of at least 0, or null for LIE's, got -1.0"):
        rop(HC, 1, None, -1.0)
    with pytest.raises(SettingError, match=r"rop needs a finite factor .* got inf"):
        Rop(inf, 90.0, 0.5, 0.9)
    with pytest.raises(SettingError, match=r"rop's angle must be a finite number, got nan"):
        Rop(1.0, nan, 0.5, 0.9)
    with pytest.raises(SettingError, match=r"in \[0, 1\], got 1.5 and 0.9"):
        Rop(1.0, 90.0, 1.5, 0.9)
    with pytest.raises(SettingError, match="no more Byzantine than honest ones, got 3 and 2"):
        Rop(None, 90.0, 0.5, 0.9).check(2, 3, 10)
    Rop(1.0, 90.0, 0.5, 0.9).check(2, 3, 10)


def test_the_class_passes_its_settings_and_the_last_update():
    updates, last = world.updates(), torch.arange(1.0, 10.0)
    context = replace(world.context(), previous_update=last)
    expected = rop(updates.rows, 3, last, 2.0, 45.0, 0.1, 0.3)
    assert torch.equal(Rop(2.0, 45.0, 0.1, 0.3).attack(updates, 3, context), expected)
    expected = rop(updates.rows, 3, last, lie_factor(12, 3))
    assert torch.equal(Rop(None, 90.0, 0.5, 0.9).attack(updates, 3, context), expected)
