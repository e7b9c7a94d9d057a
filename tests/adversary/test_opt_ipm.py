import numpy as np
import pytest
import torch

from lightning_fl import SettingError, Updates
from lightning_fl.adversary.opt_ipm import OptIpm, opt_ipm
from lightning_fl.aggregator.krum import Krum
from lightning_fl.aggregator.trimmed_mean import trimmed_mean
from lightning_fl.contract import world
from tests.adversary import reference

HC = torch.from_numpy(reference.HC)
RULES = {
    "trimmed_mean": (lambda updates: trimmed_mean(updates.rows, 2), lambda x: reference.trimmed_mean(x, 2)),
    "krum": (lambda updates: Krum(2)(updates.rows), lambda x: x[reference.krum_choice(x, 2)]),
}


@pytest.mark.parametrize(("rule", "t"), [("trimmed_mean", 30.0), ("krum", 10.0)])
def test_known_answers(rule, t):
    """Against the trimmed mean 10 and 30 are better, 70 is no worse and no better: a plateau, on which the search stays
    where it is.  With "at least as good" for "better" it would climb on to the end."""
    mean = torch.tensor([2 / 15, 7 / 60], dtype=torch.float64)
    torch.testing.assert_close(opt_ipm(HC, 2, RULES[rule][0]), (-t * mean).expand(2, 2))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["random", "tied", "offset"])
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_the_loop(rule, name, seed):
    x, (ours, slow) = reference.problem(name, seed), RULES[rule]
    mean = x.mean(0)
    t = reference.byzfl_search(lambda t: reference.harm(x, 2, slow, -t * mean))
    np.testing.assert_allclose(opt_ipm(torch.from_numpy(x), 2, ours), [-t * mean] * 2, rtol=1e-9)


def test_a_plateau_leaves_zeros():
    forged = opt_ipm(HC, 2, lambda updates: updates.rows[0])
    assert torch.equal(forged, torch.zeros(2, 2, dtype=torch.float64))


def test_harm_counts_from_the_mean_by_data_weights():
    """The rule gives the second row, which is that mean, unless t is 10: then the first, which is not."""
    honest = torch.tensor([[1.0], [3.0]])

    def rule(updates):
        torch.testing.assert_close(updates.data_weights, torch.tensor([0.0, 2 / 3, 1 / 3]).double())
        return updates.rows[0] if updates.rows[2] == -20 else updates.rows[1]

    assert opt_ipm(honest, 1, rule, torch.tensor([0.0, 1.0])).item() == -20


def test_refuses_settings_out_of_range():
    with pytest.raises(SettingError, match="opt_ipm asks the rule at least once, got 0"):
        opt_ipm(HC, 1, RULES["krum"][0], evaluations=0)
    with pytest.raises(SettingError, match=r"not 0 and 0 < ratio < 1, got 0.0, 0.0 and 0.8"):
        OptIpm(20, 0.0, 0.0, 0.8)
    with pytest.raises(SettingError, match=r"got 0.0, 10.0 and 1.0"):
        OptIpm(20, 0.0, 10.0, 1.0)


def test_the_class_passes_its_settings_and_the_weights():
    updates = Updates(world.honest_updates(), torch.arange(1.0, 13.0))

    def rule(updates):
        return trimmed_mean(updates.rows, 3) * updates.data_weights[0]

    forged = OptIpm(9, 0.5, 3.0, 0.6).attack(updates, 3, world.context(rule))
    assert torch.equal(forged, opt_ipm(updates.rows, 3, rule, updates.data_weights, 9, 0.5, 3.0, 0.6))
