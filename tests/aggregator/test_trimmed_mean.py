import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_fl import SettingError, Updates
from lightning_fl.aggregator.trimmed_mean import TrimmedMean, trimmed_mean
from lightning_fl.contract import hostile, world
from tests.aggregator import reference

D = 6


@pytest.mark.parametrize("f", [0, 1, 4, 5])
@pytest.mark.parametrize("name", reference.PROBLEMS)
def test_agrees_with_the_loop(name, f):
    x = reference.problem(name, 11, D)
    np.testing.assert_allclose(trimmed_mean(torch.as_tensor(x), f).numpy(), reference.trimmed_mean(x, f), rtol=1e-12)


def test_literal():
    """Without the f largest alone (2.3333, 2.6667), the f smallest alone (32, 7), the furthest row (2.3333, 7)."""
    x = torch.tensor([[1.0, 8.0], [2.0, 6.0], [4.0, 7.0], [90.0, -5.0]])
    assert trimmed_mean(x, f=1).tolist() == [3.0, 6.5]
    assert trimmed_mean(x, f=0).tolist() == [24.25, 4.0]


def test_ends_at_the_median(draw):
    x = torch.randn(9, 50, generator=draw)
    assert torch.equal(trimmed_mean(x, f=4), x.median(0).values)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_keeps_dtype_and_argument(dtype, draw):
    x = torch.randn(115, 5000, generator=draw).to(dtype)
    before = x.clone()
    y = trimmed_mean(x, f=15)
    assert y.dtype == dtype
    assert torch.equal(x, before)
    expected = x.double().sort(0).values[15:100].mean(0)
    torch.testing.assert_close(y, expected.to(dtype), rtol=2 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)


def test_non_finite_rows_count_among_the_f(draw):
    """Of f = 2 one is known: one more value goes on either side, not two."""
    x = torch.randn(9, D, generator=draw)
    x[3, 1] = torch.nan
    np.testing.assert_allclose(
        trimmed_mean(x, f=2).numpy(), reference.trimmed_mean(np.delete(x.numpy(), 3, 0), 1), rtol=1e-5, atol=1e-6
    )
    x[[0, 5, 8]] = torch.inf  # four are known: nothing is left to trim
    torch.testing.assert_close(trimmed_mean(x, f=2), x[[1, 2, 4, 6, 7]].mean(0))


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 14), hostile.lists(6, least=0), st.integers(0, 99), st.sampled_from([1, None]))
def test_stays_within_the_honest_values(n, values, seed, entries):
    f = (n - 1) // 2
    values = values[:f]
    honest = torch.randn(n - len(values), D, generator=torch.Generator().manual_seed(seed))
    x = hostile.rows(honest, values, entries)
    y = trimmed_mean(x, f)
    assert (honest.min(0).values - 1e-6 <= y).all()
    assert (y <= honest.max(0).values + 1e-6).all()


def test_the_class_is_the_function(draw):
    x = torch.randn(7, world.D, generator=draw)
    aggregation = TrimmedMean(f=2).aggregate(Updates(x), world.oracle())
    assert torch.equal(aggregation.update, trimmed_mean(x, 2))
    assert aggregation.weights is None


@pytest.mark.parametrize(("n", "f"), [(4, 2), (5, -1), (1, 1)])
def test_refuses_f(n, f):
    match = rf"trimmed_mean needs f >= 0 and n >= 2f \+ 1 updates, got n={n} and f={f}; change f"
    with pytest.raises(SettingError, match=match):
        trimmed_mean(torch.ones(n, 2), f)
    with pytest.raises(SettingError, match=match):
        TrimmedMean(f).check(n, 2)


def test_refuses_what_is_no_matrix_of_numbers(unchecked):
    with pytest.raises(SettingError, match="updates must be a matrix"):
        trimmed_mean(torch.zeros(3), 0)
    with pytest.raises(SettingError, match="updates must be floating point"):
        trimmed_mean(torch.zeros(2, 3, dtype=torch.int64), 0)
    with pytest.raises(SettingError, match="trimmed_mean needs at least one update without NaN and inf, got none"):
        trimmed_mean(torch.full((3, 2), torch.nan), 1)
