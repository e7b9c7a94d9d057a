from time import perf_counter

import numpy as np
import pytest
import torch

from lightning_fl import SettingError, Updates, seeding
from lightning_fl.aggregator import mda
from lightning_fl.aggregator.draw_order import draw_order
from lightning_fl.aggregator.mda import Mda, minimum_diameter_weights
from lightning_fl.contract import world
from lightning_fl.updates.products import gram_matrix
from tests.aggregator import reference

N, D, F = 9, 5, 3
X = torch.tensor(reference.X)


def test_literal():
    """The diameters are 3.195, 2.385 and 1.703."""
    for f, mean, rows in [
        (1, [0.8333333, 1.3166667], range(6)),
        (2, [0.78, 0.98], [0, 1, 2, 3, 5]),
        (3, [0.975, 1.225], [1, 2, 3, 5]),
    ]:
        expected = torch.tensor(mean, dtype=torch.float64)
        torch.testing.assert_close(Mda(f)(X), expected, rtol=0, atol=1e-6)
        assert minimum_diameter_weights(gram_matrix(X), f).nonzero().flatten().tolist() == list(rows)


def test_the_first_of_equal_subsets_counts():
    """Rows 0, 1 and 2 are as close together as rows 1, 2 and 3."""
    x = torch.tensor([[0.0], [5.0], [1.0], [6.0], [-9.0]])
    assert minimum_diameter_weights(gram_matrix(x), 2).tolist() == [1 / 3, 1 / 3, 1 / 3, 0, 0]
    order = torch.tensor([3, 1, 2, 4, 0])
    assert minimum_diameter_weights(gram_matrix(x), 2, order).tolist() == [0, 1 / 3, 1 / 3, 1 / 3, 0]
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [9.0, 9.0], [9.0, 9.0], [9.0, 9.0]])
    assert minimum_diameter_weights(gram_matrix(x[:5]), 2).tolist() == [1 / 3, 1 / 3, 1 / 3, 0, 0]


@pytest.mark.parametrize("seed", range(60))
def test_agrees_with_enumeration_where_many_subsets_are_equal(seed):
    """Rows on a small grid: the same distances come up again and again."""
    draw = np.random.default_rng(seed)
    n = int(draw.integers(3, 11))
    f, x = int(draw.integers(0, (n + 1) // 2)), draw.integers(0, 4, (n, 2)).astype(float)
    _, subset = reference.minimum_diameter_average(x, f)
    weights = minimum_diameter_weights(gram_matrix(torch.tensor(x)), f)
    assert weights.nonzero().flatten().tolist() == list(subset)


def test_115_clients_and_15_liars_take_a_moment():
    """Enumeration would try 10^19 subsets.  Ten seconds would be a hundred times what it takes."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(115, 20, generator=draw, dtype=torch.float64)
    gram = gram_matrix(x)
    started = perf_counter()
    chosen = minimum_diameter_weights(gram, 15).nonzero().flatten()
    assert perf_counter() - started < 10
    assert len(chosen) == 100
    diameter = torch.pdist(x[chosen]).max()
    for swapped in range(200):  # no swap of a row makes it smaller
        keep = chosen[torch.arange(100) != swapped % 100]
        other = torch.tensor([i for i in range(115) if i not in chosen])[swapped % 15]
        assert torch.pdist(x[torch.cat([keep, other[None]])]).max() >= diameter


@pytest.mark.parametrize("f", [0, F, (N - 1) // 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", reference.PROBLEMS)
def test_agrees_with_the_loop(name, dtype, f):
    x = torch.as_tensor(reference.problem(name, N, D), dtype=dtype)
    updates = Updates(x)
    result = updates.combine(minimum_diameter_weights(updates.centred.gram, f))
    expected = reference.minimum_diameter_average(x.double().numpy(), f)[0]
    np.testing.assert_allclose(result.numpy(), expected, rtol=2e-6 if dtype == torch.float32 else 1e-9, atol=1e-9)


def test_draws_which_of_equal_subsets_counts():
    updates = world.updates()
    aggregation = Mda(F).aggregate(updates, world.oracle())
    order = draw_order(updates, seeding.derive_seed(0, "server", "ties", 0))
    assert torch.equal(aggregation.weights, minimum_diameter_weights(updates.centred.gram, F, order))


def test_a_search_that_takes_too_long_is_an_error(monkeypatch):
    monkeypatch.setattr(mda, "_MOST_NODES", 3)
    with pytest.raises(SettingError, match=r"mda needs fewer steps .* more than 3 for n=7 and f=3; lower f or use"):
        Mda(3)(X)


def test_nobody_is_preferred_for_where_he_stands():
    """Three clients at one end of a line and three at the other: either half, each about as often."""
    x = torch.tensor([[0.0], [0.0], [0.0], [9.0], [4.5], [9.0], [9.0]])
    rule = Mda(3)
    first = [rule.weights(Updates(x, ids=range(7)), world.oracle(index=t))[0].item() for t in range(60)]
    assert 15 < sum(value > 0 for value in first) < 45
