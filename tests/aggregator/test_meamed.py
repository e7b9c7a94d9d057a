import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_fl import SettingError, Updates
from lightning_fl.aggregator.meamed import Meamed, mean_around_median
from lightning_fl.contract import hostile, world
from tests.aggregator import reference
from tests.aggregator import reference_peers as peers

D = 6


@pytest.mark.parametrize("f", [0, 1, 4, 5])
@pytest.mark.parametrize("n", [11, 12])
@pytest.mark.parametrize("name", reference.PROBLEMS)
def test_agrees_with_the_loop(name, n, f):
    x = reference.problem(name, n, D)
    np.testing.assert_allclose(
        mean_around_median(torch.as_tensor(x), f).numpy(), peers.mean_around_median(x, f), rtol=1e-12
    )


def test_literal():
    """In the first column the medians are 1 and 0.85, and 0, 0.2, 0.7, 1, 1.1 count (2 is as near as 0); in the second
    0, 0.5, 1.1, 1.3, 2 around 1.1 and 1.2.

    The trimmed mean of all seven is (0.9333, 0.9667); the mean of distances to the median (0.48, 0.58).
    """
    x = torch.tensor(peers.X, dtype=torch.float64)
    torch.testing.assert_close(mean_around_median(x, 2), torch.tensor([0.6, 0.98]).double(), rtol=1e-7, atol=0)
    torch.testing.assert_close(mean_around_median(x[:6], 1), torch.tensor([0.6, 0.98]).double(), rtol=1e-7, atol=0)


def test_literal_around_the_median_not_the_trimmed_mean():
    """Of 0, 3, 4, 9, 10 the median 4 drops 10; the trimmed mean 5.33 would drop 0 and give 6.5."""
    assert mean_around_median(torch.tensor([[0.0], [3.0], [4.0], [9.0], [10.0]]), 1).item() == 4


def test_literal_middle_of_an_even_number():
    """Around 5.5, 0 is farthest of 0, 4, 7, 10 (around 4, 10 is); around 4.5, 10 of 0, 3, 6, 10 (around 6, 0 is)."""
    assert mean_around_median(torch.tensor([[0.0], [4.0], [7.0], [10.0]]), 1).item() == 7
    assert mean_around_median(torch.tensor([[0.0], [3.0], [6.0], [10.0]]), 1).item() == 3


def test_of_two_values_equally_near_the_smaller_one_counts():
    """Of 0, 1, 2, 3, 4 around 2, four values; rows in any order."""
    for order in [[0.0, 1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0, 0.0]]:
        assert mean_around_median(torch.tensor(order)[:, None], f=1).item() == 1.5


def test_equal_values_are_as_near_as_one_of_them():
    """Around 4, the three nearest of 0, 0, 4, 5, 5 are 4, 5, 5: a zero lost does not show in the largest distance."""
    x = torch.tensor([[0.0], [0.0], [4.0], [5.0], [5.0]])
    assert mean_around_median(x, f=2).item() == pytest.approx(14 / 3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_keeps_dtype_and_argument(dtype, draw):
    x = torch.randn(115, 5000, generator=draw).to(dtype)
    before = x.clone()
    y = mean_around_median(x, f=15)
    assert y.dtype == dtype
    assert torch.equal(x, before)
    expected = torch.as_tensor(peers.mean_around_median(x[:, :50].double().numpy(), 15))
    tolerance = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(y[:50], expected.to(dtype), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("f", range(1, 6))
def test_n_minus_f_equal_rows_win(f, draw):
    x = 1e3 * torch.randn(11, D, generator=draw)
    x[f:] = torch.linspace(-1, 1, D)
    x[0] = 1e30
    torch.testing.assert_close(mean_around_median(x[torch.randperm(11, generator=draw)], f), x[-1], rtol=3e-7, atol=0)


def test_moves_with_the_rows(draw):
    """Translation, scale and order."""
    x = torch.randn(11, D, generator=draw, dtype=torch.float64)
    order = torch.randperm(11, generator=draw)
    torch.testing.assert_close(mean_around_median((3 * x + 7)[order], 3), 3 * mean_around_median(x, 3) + 7)
    torch.testing.assert_close(mean_around_median(-x, 3), -mean_around_median(x, 3))


def test_non_finite_rows_count_among_the_f(draw):
    x = torch.randn(9, D, generator=draw, dtype=torch.float64)
    x[3, 1] = torch.nan
    np.testing.assert_allclose(
        mean_around_median(x, 2).numpy(), peers.mean_around_median(np.delete(x.numpy(), 3, 0), 1), rtol=1e-12
    )
    x[[0, 5, 8]] = torch.inf
    torch.testing.assert_close(mean_around_median(x, 2), x[[1, 2, 4, 6, 7]].mean(0))


def test_how_huge_a_row_is_does_not_matter(draw):
    x = torch.randn(13, D, generator=draw)
    results = []
    for huge in [1e6, 1e30]:
        x[2], x[7] = huge, -huge
        results.append(mean_around_median(x, 2))
    assert torch.equal(*results)
    np.testing.assert_allclose(results[0], peers.mean_around_median(x.double().numpy(), 2), rtol=1e-5, atol=1e-6)


@settings(max_examples=100, deadline=None)
@given(st.integers(3, 14), hostile.lists(6, least=0), st.integers(0, 99), st.sampled_from([1, None]))
def test_stays_near_the_honest_values(n, values, seed, entries):
    """A value that counts is no farther from the centre, which is among the honest ones, than an honest one is."""
    f = (n - 1) // 2
    values = values[:f]
    honest = torch.randn(n - len(values), D, generator=torch.Generator().manual_seed(seed))
    x = hostile.rows(honest, values, entries)
    y = mean_around_median(x, f)
    low, high = honest.min(0).values, honest.max(0).values
    assert (y - (low + high) / 2).abs().le(1.5 * (high - low) + 1e-6).all()


def test_the_class_is_the_function(draw):
    x = torch.randn(7, world.D, generator=draw)
    aggregation = Meamed(f=2).aggregate(Updates(x), world.oracle())
    assert torch.equal(aggregation.update, mean_around_median(x, 2))
    assert aggregation.weights is None


@pytest.mark.parametrize(("n", "f"), [(4, 2), (5, -1), (1, 1)])
def test_refuses_f(n, f):
    match = rf"mean_around_median needs f >= 0 and n >= 2f \+ 1 updates, got n={n} and f={f}; change f"
    with pytest.raises(SettingError, match=match):
        mean_around_median(torch.ones(n, 2), f)
    with pytest.raises(SettingError, match=match):
        Meamed(f).check(n, 2)


def test_refuses_what_is_no_matrix_of_numbers(unchecked):
    with pytest.raises(SettingError, match="updates must be a matrix"):
        mean_around_median(torch.zeros(3), 0)
    with pytest.raises(SettingError, match="updates must be floating point"):
        mean_around_median(torch.zeros(2, 3, dtype=torch.int64), 0)
    with pytest.raises(
        SettingError, match="mean_around_median needs at least one update without NaN and inf, got none"
    ):
        mean_around_median(torch.full((3, 2), torch.nan), 1)
