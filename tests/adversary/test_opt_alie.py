import numpy as np
import pytest
import torch

from lightning_fl import Updates
from lightning_fl.adversary.opt_alie import OptAlie
from lightning_fl.contract import world
from tests.adversary import reference
from tests.adversary.test_opt_ipm import HC, RULES


@pytest.mark.parametrize("rule", RULES)
def test_known_answers(rule):
    """t is 10 for both rules; with the population's standard deviation it would be (6.68, 9.90)."""
    expected = torch.tensor([[7.30736056, 10.83891767]], dtype=torch.float64).expand(2, 2)
    torch.testing.assert_close(OptAlie().attack(Updates(HC), 2, world.context(RULES[rule][0])), expected)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["random", "tied", "offset"])
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_the_loop(rule, name, seed):
    x, (ours, slow) = reference.problem(name, seed), RULES[rule]
    row = lambda t: x.mean(0) + t * reference.std(x)  # noqa: E731
    t = reference.byzfl_search(lambda t: reference.harm(x, 2, slow, row(t)))
    np.testing.assert_allclose(
        OptAlie().attack(Updates(torch.from_numpy(x)), 2, world.context(ours)), [row(t)] * 2, rtol=1e-9
    )
