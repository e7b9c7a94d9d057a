import numpy as np
import pytest
import torch

from lightning_fl import SettingError, Updates
from lightning_fl.aggregator.geometric_median import geometric_median
from lightning_fl.aggregator.rfa import Rfa, rfa, rfa_weights
from lightning_fl.contract import hostile, world
from lightning_fl.updates.products import gram_matrix
from tests.aggregator import reference

N, D = 9, 5
X = torch.tensor(reference.X)


@pytest.mark.parametrize("steps", [1, 3, 8])
@pytest.mark.parametrize("nu", [1e-6, 0.1, 2.0])
@pytest.mark.parametrize("name", reference.PROBLEMS)
def test_agrees_with_the_loop(name, nu, steps):
    x, weights = reference.problem(name, N, D), np.arange(1.0, N + 1)
    result = rfa(torch.as_tensor(x), torch.as_tensor(weights), nu, steps)
    np.testing.assert_allclose(result.numpy(), reference.rfa(x, weights, nu, steps), rtol=1e-6, atol=1e-9)


def test_keeps_dtype_and_argument():
    x = torch.as_tensor(reference.problem("random", N, D), dtype=torch.float32)
    before = x.clone()
    assert rfa(x).dtype == torch.float32
    assert torch.equal(x, before)


def test_literal():
    """The first row lies at the start, 0, so that nu is its distance in every step that stays near."""
    for nu, expected in [
        (0.1, [0.88070735, 0.82321239]),
        (1e-6, [7.454e-5, 6.686e-5]),
        (2.0, [1.05489677, 1.06730709]),
    ]:
        torch.testing.assert_close(rfa(X, nu=nu), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-7)


def test_many_steps_lead_to_the_geometric_median():
    torch.testing.assert_close(rfa(X, nu=1e-3, n_iterations=3000), geometric_median(X), rtol=0, atol=1e-3)
    assert (rfa(X) - geometric_median(X)).norm() > 0.1  # three do not


@pytest.mark.parametrize("seed", range(5))
def test_moves_with_the_rows(seed):
    """Scale with nu, rotation and order; not translation, as the start is 0."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(N, D, generator=draw, dtype=torch.float64)
    rotation = torch.linalg.qr(torch.randn(D, D, generator=draw, dtype=torch.float64)).Q
    order = torch.randperm(N, generator=draw)
    torch.testing.assert_close(rfa((3 * x @ rotation)[order], nu=0.3), 3 * rfa(x, nu=0.1) @ rotation)
    assert (rfa(x + 1) - rfa(x) - 1).norm() > 1e-3


def test_rows_that_share_an_offset_keep_their_distances():
    """From the second step on, distances of 1 to z count, beside an offset of 1e7."""
    draw = torch.Generator().manual_seed(0)
    x = (torch.randn(N, D, generator=draw, dtype=torch.float64) * 2**20).round() / 2**20 + 1e7
    np.testing.assert_allclose(rfa(x).numpy(), reference.rfa(x.numpy(), np.ones(N), 0.1, 3), rtol=0, atol=1e-6)


@pytest.mark.parametrize("value", hostile.VALUES)
def test_hostile_rows_do_not_break_it(value):
    honest = torch.randn(N, D, generator=torch.Generator().manual_seed(0))
    for entries in [None, 1]:
        result = rfa(hostile.rows(honest, [value] * 3, entries), n_iterations=5)
        assert result.isfinite().all()
        assert result.norm() <= 3 * honest.norm(dim=1).max()


def test_rows_that_do_not_count():
    """Those with NaN, inf or weight 0."""
    x = torch.as_tensor(reference.problem("random", N, D))
    x[2], x[5, 1] = torch.nan, torch.inf
    weights = torch.ones(N).index_fill(0, torch.tensor([7]), 0)
    keep = x.isfinite().all(1) & (weights > 0)
    torch.testing.assert_close(rfa(x, weights), rfa(x[keep]))
    assert rfa_weights(gram_matrix(x, torch.zeros(1, D).double()), weights)[~keep].tolist() == [0, 0, 0]


@pytest.mark.usefixtures("unchecked")
def test_errors():
    for nu, steps in [(0.0, 3), (-1.0, 3), (0.1, 0), (float("nan"), 1), (float("inf"), 1)]:
        message = f"rfa needs a finite nu > 0 and n_iterations >= 1, got {nu} and {steps}"
        with pytest.raises(SettingError, match=message):
            rfa(X, nu=nu, n_iterations=steps)
        with pytest.raises(SettingError, match=message):
            Rfa(nu, steps)
    with pytest.raises(SettingError, match="at least one update without NaN"):
        rfa(torch.full((6, 2), torch.nan))


def test_the_class_weighs_by_data():
    shares = torch.arange(1.0, 13.0)
    updates = Updates(world.honest_updates(12), shares)
    aggregation = Rfa().aggregate(updates, world.oracle())
    torch.testing.assert_close(aggregation.update, rfa(updates.rows, shares))
    other = Rfa(nu=1.0, n_iterations=8).aggregate(updates, world.oracle())
    torch.testing.assert_close(other.update, rfa(updates.rows, shares, 1.0, 8))
    assert aggregation.weights.sum().item() == pytest.approx(1)
