import numpy as np
import pytest
import torch

from lightning_fl.aggregator.aksel import Aksel, aksel, aksel_weights
from lightning_fl.contract import world
from tests.aggregator import reference

N, D, F = 9, 5, 3
X = torch.tensor(reference.X)


def test_literal():
    """The median is (1, 1.1); rows 0, 1, 2, 3 and 5 are nearest to it."""
    torch.testing.assert_close(aksel(X, 2), torch.tensor([0.78, 0.98], dtype=torch.float64))


def test_of_even_many_the_median_is_the_mean_of_two():
    """The pivot is 2.4: rows 1, 2 and 3 are nearest.  The lower one, 1.8, would choose rows 0, 1 and 2."""
    x = torch.tensor([[0.0], [1.8], [3.0], [4.0]])
    assert aksel(x, 1).item() == pytest.approx((1.8 + 3 + 4) / 3)


def test_of_equally_near_rows_the_first_counts():
    assert aksel_weights(torch.tensor([2.0, 1.0, torch.inf, 2.0, 2.0]).double(), 2).tolist() == [
        1 / 3,
        1 / 3,
        0,
        1 / 3,
        0,
    ]


@pytest.mark.parametrize("f", [0, F, (N - 1) // 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", reference.PROBLEMS)
def test_agrees_with_the_loop(name, dtype, f):
    x = torch.as_tensor(reference.problem(name, N, D), dtype=dtype)
    before = x.clone()
    result = aksel(x, f)
    expected = reference.aksel(x.double().numpy(), f)
    np.testing.assert_allclose(result.numpy(), expected, rtol=2e-6 if dtype == torch.float32 else 1e-9, atol=1e-6)
    assert result.dtype == dtype
    assert torch.equal(x, before)


def test_every_column_of_a_long_row_counts(draw):
    """Also those of another part than the first 4,096."""
    x = torch.randn(N, 10_000, generator=draw)
    x[:, :5000] = 0
    np.testing.assert_allclose(aksel(x, F), reference.aksel(x.double().numpy(), F), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_moves_with_the_rows(seed):
    """Translation, scale and order."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(N, D, generator=draw, dtype=torch.float64)
    shift = torch.randn(D, generator=draw, dtype=torch.float64)
    order = torch.randperm(N, generator=draw)
    moved = aksel((3 * x + shift)[order], F)
    torch.testing.assert_close(moved, 3 * aksel(x, F) + shift)


def test_the_class_gives_the_functions_update_and_its_weights():
    updates = world.updates()
    aggregation = Aksel(F).aggregate(updates, world.oracle())
    torch.testing.assert_close(aggregation.update, aksel(updates.rows, F))
    assert aggregation.weights.sum().item() == pytest.approx(1)
    torch.testing.assert_close(aggregation.weights.float() @ updates.rows, aggregation.update)
