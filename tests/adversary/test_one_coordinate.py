from dataclasses import replace

import numpy as np
import pytest
import torch

from lightning_fl import Aggregation, Updates
from lightning_fl.adversary.one_coordinate import OneCoordinate
from lightning_fl.aggregator.krum import krum_weights
from lightning_fl.aggregator.median import Median
from lightning_fl.contract import world
from tests.adversary import reference


def krum(updates):
    return krum_weights(updates.gram, 2)


def forge(honest, b, rule, trust=lambda updates: None, **settings):
    """Against a rule, and the trust that it puts in each update."""
    context = replace(world.context(), aggregation=lambda updates: Aggregation(rule(updates), trust=trust(updates)))
    return OneCoordinate(**settings).attack(Updates(honest), b, context)


@pytest.mark.parametrize("direction", ["one", "all"])
@pytest.mark.parametrize("name", ["random", "tied", "rank-deficient"])
@pytest.mark.parametrize("seed", range(4))
def test_reaches_the_edge_of_what_krum_chooses(name, direction, seed):
    """The loop's Krum chooses the row, and no longer where it lies 1e-4 farther out."""
    x = reference.problem(name, seed)
    rule = lambda updates: updates.combine(krum(updates))  # noqa: E731
    row = forge(torch.from_numpy(x), 2, rule, krum, direction=direction)[0].numpy()
    moved = row - x.mean(0)
    along = np.ones(len(moved)) if direction == "all" else np.eye(len(moved))[reference.std(x).argmax()]
    np.testing.assert_allclose(moved, moved.max() * along, atol=1e-9)
    chosen = lambda row: reference.krum_choice(np.vstack([x, row, row]), 2) >= len(x)  # noqa: E731
    assert chosen(row) == (moved.max() > 1e-9)  # the mean itself is sent where no row on the line is chosen
    assert not chosen(row + 1e-4 * np.linalg.norm(reference.std(x)) * along)


def test_known_answer():
    """Standard deviations 0 and 2 sqrt 2, so the second coordinate moves; its edge is sqrt(81 - 4)."""
    honest = torch.tensor([[2.0, 3.0], [2.0, 7.0]], dtype=torch.float64)

    def short(updates):
        return (updates.rows.norm(dim=1) <= 9).double()

    forged = forge(honest, 2, lambda updates: updates.rows[0], short)
    np.testing.assert_allclose(forged, [[2, 77**0.5]] * 2, rtol=2e-5)


def test_a_rule_without_weights_is_asked_for_harm():
    """The median of 0, 2 and the forged value beyond 2 is 2: no harm beyond that of gamma = std = sqrt 2."""
    honest = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    forged = forge(honest, 1, lambda updates: Median()(updates.rows))
    assert forged.item() == pytest.approx(1 + 2**0.5)


def test_averaging_trusts_to_the_end():
    """1 + 3 + 7 + ... steps as long as the deviations, sqrt 2: 2^4 - 1 of them in five questions."""
    honest = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    everybody = lambda updates: updates.data_weights  # noqa: E731
    forged = forge(honest, 1, lambda updates: updates.rows.mean(0), everybody, evaluations=6)
    assert forged.item() == pytest.approx(1 + 15 * 2**0.5)
    forged = forge(honest.repeat(1, 9), 1, lambda updates: updates.rows[0], everybody, direction="all", evaluations=6)
    assert forged[0].tolist() == pytest.approx([1 + 15 * 2**0.5] * 9)


@pytest.mark.parametrize("evaluations", [2, 20])
def test_asks_a_fixed_number_of_times(evaluations):
    asked = []
    trust = lambda updates: asked.append(1) or krum(updates)  # noqa: E731
    forge(world.honest_updates(), 2, lambda updates: updates.rows[0], trust, evaluations=evaluations)
    assert len(asked) == evaluations


def test_nobody_trusted_leaves_the_mean():
    honest = world.honest_updates()
    nobody = lambda updates: torch.zeros(updates.n)  # noqa: E731
    forged = forge(honest, 1, lambda updates: updates.rows[0], nobody)
    torch.testing.assert_close(forged[0], honest.mean(0))
