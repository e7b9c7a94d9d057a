import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_fl import SettingError
from lightning_fl.aggregator.aksel import Aksel, aksel, aksel_weights
from lightning_fl.contract import hostile, world
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


@pytest.mark.parametrize("seed", range(10))
def test_moves_with_the_rows(seed):
    """Translation, scale and order."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(N, D, generator=draw, dtype=torch.float64)
    shift = torch.randn(D, generator=draw, dtype=torch.float64)
    order = torch.randperm(N, generator=draw)
    moved = aksel((3 * x + shift)[order], F)
    torch.testing.assert_close(moved, 3 * aksel(x, F) + shift)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 30), hostile.lists(F), st.sampled_from([1, None]))
def test_hostile_rows_do_not_break_it(seed, values, entries):
    honest = torch.randn(N, D, generator=torch.Generator().manual_seed(seed))
    result = aksel(hostile.rows(honest, values, entries), len(values))
    assert result.isfinite().all()
    assert (result - honest.mean(0)).norm() <= 3 * torch.pdist(honest).max()


@pytest.mark.parametrize("seed", range(5))
def test_a_row_of_1e30_is_one_of_a_million(seed):
    """It is dropped either way."""
    x = torch.randn(N, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    far, further = x.clone(), x.clone()
    far[[1, 4]] *= 1e6
    further[[1, 4]] *= 1e30
    torch.testing.assert_close(aksel(further, F), aksel(far, F))


@pytest.mark.parametrize("f", [1, F])
def test_equal_rows_win(f):
    """n - f equal rows make the result, whatever the others are."""
    equal = torch.tensor([0.1, -3.0, 1e3])
    for bad in [7.0, -1e30, torch.nan, 0.0]:
        x = torch.cat([torch.full((f, 3), bad), equal.expand(f + 1, -1)])
        x[0] *= 2
        torch.testing.assert_close(aksel(x, f), equal)


def test_non_finite_rows_count_among_the_f():
    x = torch.as_tensor(reference.problem("random", N, D))
    x[2], x[5, 1] = torch.nan, torch.inf
    rest = x[x.isfinite().all(1)]
    for f, left in [(F, F - 2), (1, 0)]:
        torch.testing.assert_close(aksel(x, f), aksel(rest, left))


@pytest.mark.parametrize("f", [-1, 4])
def test_refuses_f_out_of_range(f):
    message = rf"aksel needs f >= 0 and n >= 2f \+ 1 updates, got n=8 and f={f}; change f"
    with pytest.raises(SettingError, match=message):
        aksel(torch.randn(8, 2), f)
    with pytest.raises(SettingError, match=message):
        Aksel(f).check(8, 3)


@pytest.mark.usefixtures("unchecked")
def test_refuses_what_no_rule_can_serve():
    with pytest.raises(SettingError, match="at least one update without NaN"):
        aksel(torch.full((6, 2), torch.nan), 1)
    with pytest.raises(SettingError, match=r"\(n, d\)"):
        aksel(torch.zeros(0, 3), 0)
    with pytest.raises(SettingError, match="floating point"):
        aksel(torch.ones(6, 3, dtype=torch.int64), 1)


def test_the_class_gives_the_functions_update_and_its_weights():
    updates = world.updates()
    aggregation = Aksel(F).aggregate(updates, world.oracle())
    torch.testing.assert_close(aggregation.update, aksel(updates.rows, F))
    assert aggregation.weights.sum().item() == pytest.approx(1)
    torch.testing.assert_close(aggregation.weights.float() @ updates.rows, aggregation.update)
