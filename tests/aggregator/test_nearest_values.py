"""Meamed and Phocas: means of the values nearest to a centre, which is the median or the trimmed mean."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_fl import SettingError, Updates
from lightning_fl.aggregator.meamed import Meamed, mean_around_median
from lightning_fl.aggregator.phocas import Phocas, phocas
from lightning_fl.contract import hostile, world
from tests.aggregator import reference_peers as peers

D = 6
RULES = {
    "meamed": (Meamed, mean_around_median, peers.mean_around_median),
    "phocas": (Phocas, phocas, peers.phocas),
}


@pytest.mark.parametrize("name", RULES)
def test_of_two_values_equally_near_the_smaller_one_counts(name):
    """Of 0, 1, 2, 3, 4 around 2, four values; rows in any order."""
    rule = RULES[name][1]
    for order in [[0.0, 1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0, 0.0]]:
        assert rule(torch.tensor(order)[:, None], f=1).item() == 1.5


@pytest.mark.parametrize("name", RULES)
def test_equal_values_are_as_near_as_one_of_them(name):
    """Around 4, the three nearest of 0, 0, 4, 5, 5 are 4, 5, 5: a zero lost does not show in the largest distance."""
    rule = RULES[name][1]
    x = torch.tensor([[0.0], [0.0], [4.0], [5.0], [5.0]])
    assert rule(x, f=2).item() == pytest.approx(14 / 3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", RULES)
def test_keeps_dtype_and_argument(name, dtype, draw):
    _, rule, loop = RULES[name]
    x = torch.randn(115, 5000, generator=draw).to(dtype)
    before = x.clone()
    y = rule(x, f=15)
    assert y.dtype == dtype
    assert torch.equal(x, before)
    expected = torch.as_tensor(loop(x[:, :50].double().numpy(), 15))
    tolerance = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(y[:50], expected.to(dtype), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("f", range(1, 6))
@pytest.mark.parametrize("name", RULES)
def test_n_minus_f_equal_rows_win(name, f, draw):
    rule = RULES[name][1]
    x = 1e3 * torch.randn(11, D, generator=draw)
    x[f:] = torch.linspace(-1, 1, D)
    x[0] = 1e30
    torch.testing.assert_close(rule(x[torch.randperm(11, generator=draw)], f), x[-1], rtol=3e-7, atol=0)


@pytest.mark.parametrize("name", RULES)
def test_moves_with_the_rows(name, draw):
    """Translation, scale and order."""
    rule = RULES[name][1]
    x = torch.randn(11, D, generator=draw, dtype=torch.float64)
    order = torch.randperm(11, generator=draw)
    torch.testing.assert_close(rule((3 * x + 7)[order], 3), 3 * rule(x, 3) + 7)
    torch.testing.assert_close(rule(-x, 3), -rule(x, 3))


@pytest.mark.parametrize("name", RULES)
def test_non_finite_rows_count_among_the_f(name, draw):
    _, rule, loop = RULES[name]
    x = torch.randn(9, D, generator=draw, dtype=torch.float64)
    x[3, 1] = torch.nan
    np.testing.assert_allclose(rule(x, 2).numpy(), loop(np.delete(x.numpy(), 3, 0), 1), rtol=1e-12)
    x[[0, 5, 8]] = torch.inf
    torch.testing.assert_close(rule(x, 2), x[[1, 2, 4, 6, 7]].mean(0))


@pytest.mark.parametrize("name", RULES)
def test_how_huge_a_row_is_does_not_matter(name, draw):
    _, rule, loop = RULES[name]
    x = torch.randn(13, D, generator=draw)
    results = []
    for huge in [1e6, 1e30]:
        x[2], x[7] = huge, -huge
        results.append(rule(x, 2))
    assert torch.equal(*results)
    np.testing.assert_allclose(results[0], loop(x.double().numpy(), 2), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=100, deadline=None)
@given(st.integers(3, 14), hostile.lists(6, least=0), st.integers(0, 99), st.sampled_from([1, None]))
def test_stays_near_the_honest_values(name, n, values, seed, entries):
    """A value that counts is no farther from the centre, which is among the honest ones, than an honest one is."""
    rule = RULES[name][1]
    f = (n - 1) // 2
    values = values[:f]
    honest = torch.randn(n - len(values), D, generator=torch.Generator().manual_seed(seed))
    x = hostile.rows(honest, values, entries)
    y = rule(x, f)
    low, high = honest.min(0).values, honest.max(0).values
    assert (y - (low + high) / 2).abs().le(1.5 * (high - low) + 1e-6).all()


@pytest.mark.parametrize("name", RULES)
def test_the_class_is_the_function(name, draw):
    kind, rule, _ = RULES[name]
    x = torch.randn(7, world.D, generator=draw)
    aggregation = kind(f=2).aggregate(Updates(x), world.oracle())
    assert torch.equal(aggregation.update, rule(x, 2))
    assert aggregation.weights is None


@pytest.mark.parametrize(("n", "f"), [(4, 2), (5, -1), (1, 1)])
@pytest.mark.parametrize("name", RULES)
def test_refuses_f(name, n, f):
    kind, rule, _ = RULES[name]
    match = rf"{name} needs f >= 0 and n >= 2f \+ 1 updates, got n={n} and f={f}; change f"
    with pytest.raises(SettingError, match=match):
        rule(torch.ones(n, 2), f)
    with pytest.raises(SettingError, match=match):
        kind(f).check(n, 2)


@pytest.mark.parametrize("name", RULES)
def test_refuses_what_is_no_matrix_of_numbers(name, unchecked):
    rule = RULES[name][1]
    with pytest.raises(SettingError, match="updates must be a matrix"):
        rule(torch.zeros(3), 0)
    with pytest.raises(SettingError, match="updates must be floating point"):
        rule(torch.zeros(2, 3, dtype=torch.int64), 0)
    with pytest.raises(SettingError, match=f"{name} needs at least one update without NaN and inf, got none"):
        rule(torch.full((3, 2), torch.nan), 1)
