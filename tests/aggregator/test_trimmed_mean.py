import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_fl import SettingError
from lightning_fl.aggregator.trimmed_mean import TrimmedMean
from lightning_fl.contract import hostile
from tests.aggregator import reference

D = 6


def test_literal():
    """Without the f largest alone (2.3333, 2.6667), the f smallest alone (32, 7), the furthest row (2.3333, 7)."""
    x = torch.tensor([[1.0, 8.0], [2.0, 6.0], [4.0, 7.0], [90.0, -5.0]])
    assert TrimmedMean(f=1)(x).tolist() == [3.0, 6.5]
    assert TrimmedMean(f=0)(x).tolist() == [24.25, 4.0]


def test_ends_at_the_median(draw):
    x = torch.randn(9, 50, generator=draw)
    assert torch.equal(TrimmedMean(f=4)(x), x.median(0).values)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_keeps_dtype_and_argument(dtype, draw):
    x = torch.randn(115, 5000, generator=draw).to(dtype)
    before = x.clone()
    y = TrimmedMean(f=15)(x)
    assert y.dtype == dtype
    assert torch.equal(x, before)
    expected = x.double().sort(0).values[15:100].mean(0)
    torch.testing.assert_close(y, expected.to(dtype), rtol=2 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)


def test_non_finite_rows_count_among_the_f(draw):
    """Of f = 2 one is known: one more value goes on either side, not two."""
    x = torch.randn(9, D, generator=draw)
    x[3, 1] = torch.nan
    np.testing.assert_allclose(
        TrimmedMean(f=2)(x).numpy(), reference.trimmed_mean(np.delete(x.numpy(), 3, 0), 1), rtol=1e-5, atol=1e-6
    )
    x[[0, 5, 8]] = torch.inf  # four are known: nothing is left to trim
    torch.testing.assert_close(TrimmedMean(f=2)(x), x[[1, 2, 4, 6, 7]].mean(0))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 14), hostile.lists(6, least=0), st.integers(0, 99), st.sampled_from([1, None]))
def test_stays_within_the_honest_values(n, values, seed, entries):
    f = (n - 1) // 2
    values = values[:f]
    honest = torch.randn(n - len(values), D, generator=torch.Generator().manual_seed(seed))
    x = hostile.rows(honest, values, entries)
    y = TrimmedMean(f)(x)
    assert (honest.min(0).values - 1e-6 <= y).all()
    assert (y <= honest.max(0).values + 1e-6).all()


@pytest.mark.parametrize(("n", "f"), [(4, 2), (1, 1)])
def test_refuses_f(n, f):
    match = rf"trimmed_mean needs f >= 0 and n >= 2f \+ 1 updates, got n={n} and f={f}; change f"
    with pytest.raises(SettingError, match=match):
        TrimmedMean(f)(torch.ones(n, 2))
    with pytest.raises(SettingError, match=match):
        TrimmedMean(f).check(n, 2)


def test_refuses_what_is_no_matrix_of_numbers():
    with pytest.raises(SettingError, match="updates must be a matrix"):
        TrimmedMean(0)(torch.zeros(3))
    with pytest.raises(SettingError, match="updates must be floating point"):
        TrimmedMean(0)(torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(SettingError, match="trimmed_mean needs at least one update without NaN and inf, got none"):
        TrimmedMean(1)(torch.full((3, 2), torch.nan))
