import numpy as np
import pytest
import torch

from lightning_fl import Updates
from lightning_fl.aggregator.fedseca import Fedseca
from lightning_fl.contract import world
from tests.aggregator import reference
from tests.aggregator import reference_field as field


def ask(rule, x):
    found = rule.aggregate(Updates(torch.as_tensor(x)), world.oracle())
    rule.on_train_batch_end()
    return found


@pytest.mark.parametrize("median", ["middle", "lower"])
@pytest.mark.parametrize("variant", ["code", "paper"])
@pytest.mark.parametrize(("x", "gamma"), [(field.V, 0.7), (field.S, 0.0), (field.V, 0.9), (reference.Z, 0.5)])
def test_small_problems(x, gamma, variant, median):
    """Of two rounds, the second with rows that are 0.2 less."""
    rule = Fedseca(gamma, 0.5, variant, median)
    first, rho = field.fedseca(x, gamma, variant, median)
    found = ask(rule, x)
    np.testing.assert_allclose(found.update, first / 2, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(found.trust, rho / max(rho.sum(), 1e-12), rtol=1e-12)
    second, _ = field.fedseca(x - 0.2, gamma, variant, median)
    np.testing.assert_allclose(ask(rule, x - 0.2).update, first / 4 + second / 2, rtol=1e-12, atol=1e-15)


def test_literal():
    """One coordinate of entries 1, 2, 3 and -1: signs agree with 3 - 1 of 4, and with 1 - 3.

    rho = 1/2, 1/2, 1/2, 0; the median length is 1.5, and the clipped sizes 1, 1.5, 1.5 and 1 have the median 1.25.  The
    elected sign is +, and r = (1 + 1.25 + 1.25) / 3.  The lower medians are 1 and 1, which give r = 1.
    """
    x = torch.tensor([[1.0], [2.0], [3.0], [-1.0]]).double()
    found = Fedseca(0.0, 0.0).aggregate(Updates(x), world.oracle())
    assert found.trust.tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    assert found.update.item() == pytest.approx(3.5 / 3)
    assert Fedseca(0.0, 0.0, median="lower")(x).item() == 1
    assert Fedseca(0.0, 0.5)(x).item() == pytest.approx(3.5 / 6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("variant", ["code", "paper"])
@pytest.mark.parametrize("problem", ["random", "rank-deficient", "badly scaled"])
def test_agrees_with_the_loop(problem, variant, dtype):
    x = torch.as_tensor(reference.problem(problem, 11, 60), dtype=dtype)
    x[2], x[3, ::2] = 0, 0
    expected, _ = field.fedseca(x.double().numpy(), 0.6, variant)
    np.testing.assert_allclose(Fedseca(0.6, 0.0, variant)(x), expected, rtol=1e-5, atol=1e-7)


def test_an_elected_zero_moves_nobody():
    """Two clients who contradict each other have no trust; so nothing is elected."""
    found = Fedseca(0.0, 0.0).aggregate(Updates(torch.tensor([[1.0, -2.0], [-1.0, 2.0]])), world.oracle())
    assert found.update.tolist() == [0, 0]
    assert found.trust.tolist() == [0, 0]
