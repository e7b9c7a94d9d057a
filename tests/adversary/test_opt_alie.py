import numpy as np
import pytest
import torch

from lightning_fl import SettingError, Updates
from lightning_fl.adversary.opt_alie import OptAlie, opt_alie
from lightning_fl.aggregator.trimmed_mean import trimmed_mean
from lightning_fl.contract import world
from tests.adversary import reference
from tests.adversary.test_opt_ipm import HC, RULES


@pytest.mark.parametrize("rule", RULES)
def test_known_answers(rule):
    """t is 10 for both rules; with the population's standard deviation it would be (6.68, 9.90)."""
    expected = torch.tensor([[7.30736056, 10.83891767]], dtype=torch.float64).expand(2, 2)
    torch.testing.assert_close(opt_alie(HC, 2, RULES[rule][0]), expected)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["random", "tied", "offset"])
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_the_loop(rule, name, seed):
    x, (ours, slow) = reference.problem(name, seed), RULES[rule]
    row = lambda t: x.mean(0) + t * reference.std(x)  # noqa: E731
    t = reference.byzfl_search(lambda t: reference.harm(x, 2, slow, row(t)))
    np.testing.assert_allclose(opt_alie(torch.from_numpy(x), 2, ours), [row(t)] * 2, rtol=1e-9)


def test_harm_counts_from_the_mean_by_data_weights():
    """The rule gives the second row, which is that mean, unless t is 10: then the first, which is not."""
    honest = torch.tensor([[1.0], [3.0]])

    def rule(updates):
        torch.testing.assert_close(updates.data_weights, torch.tensor([0.0, 2 / 3, 1 / 3]).double())
        return updates.rows[0] if 16 < updates.rows[2] < 17 else updates.rows[1]

    assert opt_alie(honest, 1, rule, torch.tensor([0.0, 1.0])).item() == pytest.approx(2 + 10 * 2**0.5)


def test_refuses_what_has_no_answer():
    with pytest.raises(SettingError, match="opt_alie needs at least 2 honest updates for a spread, got 1"):
        opt_alie(HC[:1], 1, RULES["krum"][0])
    with pytest.raises(SettingError, match="opt_alie needs at least 2 honest updates for a spread, got 1"):
        OptAlie(20, 0.0, 10.0, 0.8).check(1, 1, 3)
    with pytest.raises(SettingError, match="opt_alie asks the rule at least once, got 0"):
        OptAlie(0, 0.0, 10.0, 0.8)


def test_the_class_passes_its_settings_and_the_weights():
    updates = Updates(world.honest_updates(), torch.arange(1.0, 13.0))

    def rule(updates):
        return trimmed_mean(updates.rows, 3) * updates.data_weights[0]

    forged = OptAlie(9, 0.5, 3.0, 0.6).attack(updates, 3, world.context(rule))
    assert torch.equal(forged, opt_alie(updates.rows, 3, rule, updates.data_weights, 9, 0.5, 3.0, 0.6))
