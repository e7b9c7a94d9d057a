import numpy as np
import pytest
import torch

from lightning_fl.adversary.rop import Rop
from tests.adversary import reference

HC, U = torch.from_numpy(reference.HC), torch.tensor([1.0, 0.0], dtype=torch.float64)


@pytest.mark.parametrize(("angle", "row"), [(90.0, [0.55389399, 1.05825176]), (180.0, [-0.43325176, 0.04556065])])
def test_known_answers(angle, row):
    """At 90 degrees the perturbation is across the reference (0.9133, 0.0117), not across the mean."""
    np.testing.assert_allclose(Rop(1.0, angle)(HC, 2, previous_update=U), [row] * 2, atol=1e-8)


@pytest.mark.parametrize("angle", [0.0, 60.0, 90.0, 180.0])
@pytest.mark.parametrize("name", reference.PROBLEMS)
def test_agrees_with_the_loop(name, angle):
    x = reference.problem(name)
    u = reference.problem("random", 1)[0]
    forged = Rop(3.0, angle, 0.2, 0.7)(torch.from_numpy(x), 2, previous_update=torch.from_numpy(u))
    np.testing.assert_allclose(forged, [reference.rop(x, u, 3.0, angle, 0.2, 0.7)] * 2, rtol=1e-9, atol=1e-12)


def test_in_the_first_round_the_mean_stands_in_for_the_last_update():
    mean = HC.mean(0)
    torch.testing.assert_close(Rop(1.0)(HC, 2), Rop(1.0)(HC, 2, previous_update=mean))
    torch.testing.assert_close((Rop(1.0)(HC, 1)[0] - mean) @ mean, torch.zeros((), dtype=torch.float64))


def test_directions_that_do_not_exist_count_as_0():
    ones = torch.ones(3, 5)
    torch.testing.assert_close(Rop(9.0)(ones, 1), ones[:1])  # nothing of the ones lies across them
    torch.testing.assert_close(Rop(5**0.5, 180.0)(ones, 1), 0 * ones[:1])
    torch.testing.assert_close(Rop(5**0.5)(0 * ones, 1), ones[:1])


def test_a_negative_factor_of_lie_counts_as_0():
    """Of one attacker among four clients it is -0.43: at 180 degrees that would be a push forwards."""
    x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
    torch.testing.assert_close(Rop(None, 180.0)(x, 1), torch.tensor([[2.0, 0.0]]))


def test_a_factor_of_0_moves_nothing():
    """LIE's own would be 0.25."""
    honest = HC.repeat(2, 1)[:10]
    torch.testing.assert_close(Rop(0.0)(honest, 3, previous_update=U)[0], (U + honest.mean(0)) / 2)
