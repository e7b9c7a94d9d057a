"""Meamed and Phocas: means of the values nearest to a centre, which is the median or the trimmed mean."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_fl import SettingError
from lightning_fl.aggregator.meamed import Meamed
from lightning_fl.aggregator.phocas import Phocas
from lightning_fl.contract import hostile
from tests.aggregator import reference_peers as peers

D = 6
RULES = {
    "meamed": (Meamed, peers.mean_around_median),
    "phocas": (Phocas, peers.phocas),
}


@pytest.mark.parametrize("name", RULES)
def test_of_two_values_equally_near_the_smaller_one_counts(name):
    """Of 0, 1, 2, 3, 4 around 2, four values; rows in any order."""
    kind = RULES[name][0]
    for order in [[0.0, 1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0, 0.0]]:
        assert kind(1)(torch.tensor(order)[:, None]).item() == 1.5


@pytest.mark.parametrize("name", RULES)
def test_equal_values_are_as_near_as_one_of_them(name):
    """Around 4, the three nearest of 0, 0, 4, 5, 5 are 4, 5, 5: a zero lost does not show in the largest distance."""
    kind = RULES[name][0]
    x = torch.tensor([[0.0], [0.0], [4.0], [5.0], [5.0]])
    assert kind(2)(x).item() == pytest.approx(14 / 3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", RULES)
def test_keeps_dtype_and_argument(name, dtype, draw):
    kind, loop = RULES[name]
    x = torch.randn(115, 5000, generator=draw).to(dtype)
    before = x.clone()
    y = kind(15)(x)
    assert y.dtype == dtype
    assert torch.equal(x, before)
    expected = torch.as_tensor(loop(x[:, :50].double().numpy(), 15))
    tolerance = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(y[:50], expected.to(dtype), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("f", range(1, 6))
@pytest.mark.parametrize("name", RULES)
def test_n_minus_f_equal_rows_win(name, f, draw):
    kind = RULES[name][0]
    x = 1e3 * torch.randn(11, D, generator=draw)
    x[f:] = torch.linspace(-1, 1, D)
    x[0] = 1e30
    torch.testing.assert_close(kind(f)(x[torch.randperm(11, generator=draw)]), x[-1], rtol=3e-7, atol=0)


@pytest.mark.parametrize("name", RULES)
def test_negative_rows_give_the_negative_result(name, draw):
    kind = RULES[name][0]
    x = torch.randn(11, D, generator=draw, dtype=torch.float64)
    torch.testing.assert_close(kind(3)(-x), -kind(3)(x))


@pytest.mark.parametrize("name", RULES)
def test_non_finite_rows_count_among_the_f(name, draw):
    kind, loop = RULES[name]
    x = torch.randn(9, D, generator=draw, dtype=torch.float64)
    x[3, 1] = torch.nan
    np.testing.assert_allclose(kind(2)(x).numpy(), loop(np.delete(x.numpy(), 3, 0), 1), rtol=1e-12)
    x[[0, 5, 8]] = torch.inf
    torch.testing.assert_close(kind(2)(x), x[[1, 2, 4, 6, 7]].mean(0))


@pytest.mark.parametrize("name", RULES)
def test_how_huge_a_row_is_does_not_matter(name, draw):
    kind, loop = RULES[name]
    x = torch.randn(13, D, generator=draw)
    results = []
    for huge in [1e6, 1e30]:
        x[2], x[7] = huge, -huge
        results.append(kind(2)(x))
    assert torch.equal(*results)
    np.testing.assert_allclose(results[0], loop(x.double().numpy(), 2), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=60, deadline=None)
@given(st.integers(3, 14), hostile.lists(6, least=0), st.integers(0, 99), st.sampled_from([1, None]))
def test_stays_near_the_honest_values(name, n, values, seed, entries):
    """A value that counts is no farther from the centre, which is among the honest ones, than an honest one is."""
    kind = RULES[name][0]
    f = (n - 1) // 2
    values = values[:f]
    honest = torch.randn(n - len(values), D, generator=torch.Generator().manual_seed(seed))
    x = hostile.rows(honest, values, entries)
    y = kind(f)(x)
    low, high = honest.min(0).values, honest.max(0).values
    assert (y - (low + high) / 2).abs().le(1.5 * (high - low) + 1e-6).all()


@pytest.mark.parametrize(("n", "f"), [(4, 2), (1, 1)])
@pytest.mark.parametrize("name", RULES)
def test_refuses_f(name, n, f):
    kind = RULES[name][0]
    match = rf"{name} needs f >= 0 and n >= 2f \+ 1 updates, got n={n} and f={f}; change f"
    with pytest.raises(SettingError, match=match):
        kind(f)(torch.ones(n, 2))
    with pytest.raises(SettingError, match=match):
        kind(f).check(n, 2)


@pytest.mark.parametrize("name", RULES)
def test_refuses_what_is_no_matrix_of_numbers(name):
    kind = RULES[name][0]
    with pytest.raises(SettingError, match="updates must be a matrix"):
        kind(0)(torch.zeros(3))
    with pytest.raises(SettingError, match="updates must be floating point"):
        kind(0)(torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(SettingError, match=f"{name} needs at least one update without NaN and inf, got none"):
        kind(1)(torch.full((3, 2), torch.nan))
