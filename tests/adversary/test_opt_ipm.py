import numpy as np
import pytest
import torch

from lightning_fl import Updates
from lightning_fl.adversary.one_coordinate import OneCoordinate
from lightning_fl.adversary.opt_alie import OptAlie
from lightning_fl.adversary.opt_ipm import OptIpm
from lightning_fl.aggregator.krum import Krum
from lightning_fl.aggregator.trimmed_mean import TrimmedMean
from lightning_fl.contract import world
from tests.adversary import reference

HC = torch.from_numpy(reference.HC)
RULES = {
    "trimmed_mean": (lambda updates: TrimmedMean(2)(updates.rows), lambda x: reference.trimmed_mean(x, 2)),
    "krum": (lambda updates: Krum(2)(updates.rows), lambda x: x[reference.krum_choice(x, 2)]),
}


@pytest.mark.parametrize(("rule", "t"), [("trimmed_mean", 30.0), ("krum", 10.0)])
def test_known_answers(rule, t):
    """Against the trimmed mean 10 and 30 are better, 70 is no worse and no better: a plateau, on which the search stays
    where it is.  With "at least as good" for "better" it would climb on to the end."""
    mean = torch.tensor([2 / 15, 7 / 60], dtype=torch.float64)
    torch.testing.assert_close(OptIpm().attack(Updates(HC), 2, world.context(RULES[rule][0])), (-t * mean).expand(2, 2))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["random", "tied", "offset"])
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_the_loop(rule, name, seed):
    x, (ours, slow) = reference.problem(name, seed), RULES[rule]
    mean = x.mean(0)
    t = reference.byzfl_search(lambda t: reference.harm(x, 2, slow, -t * mean))
    np.testing.assert_allclose(
        OptIpm().attack(Updates(torch.from_numpy(x)), 2, world.context(ours)), [-t * mean] * 2, rtol=1e-9
    )


def test_a_plateau_leaves_zeros():
    forged = OptIpm().attack(Updates(HC), 2, world.context(lambda updates: updates.rows[0]))
    assert torch.equal(forged, torch.zeros(2, 2, dtype=torch.float64))


@pytest.mark.parametrize(
    ("attack", "moved", "sent"),
    [(OptIpm(), (-20, -20), -20), (OptAlie(), (16, 17), 2 + 10 * 2**0.5), (OneCoordinate(), (3.4, 3.5), 2 + 2**0.5)],
)
def test_harm_counts_from_the_mean_by_data_weights(attack, moved, sent):
    """The rule gives the second row, which is that mean, unless the search is where it sends: then the first."""
    honest = Updates(torch.tensor([[1.0], [3.0]]), torch.tensor([0.0, 1.0]))

    def rule(updates):
        torch.testing.assert_close(updates.data_weights, torch.tensor([0.0, 2 / 3, 1 / 3]).double())
        return updates.rows[0] if moved[0] <= updates.rows[2] <= moved[1] else updates.rows[1]

    assert attack.attack(honest, 1, world.context(rule)).item() == pytest.approx(sent)
