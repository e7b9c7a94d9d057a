import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_fl import SettingError
from lightning_fl.aggregator.median import Median
from lightning_fl.contract import conf, hostile
from lightning_fl.updates import ordered as module
from lightning_fl.updates.ordered import reduce_columns

D = 6
MIDDLES = ["lower", "upper", "mean"]


def test_literal_even_number():
    x = torch.tensor([[1.0, 8.0], [2.0, 6.0], [4.0, 7.0], [9.0, 5.0]])
    assert Median("lower")(x).tolist() == [2.0, 6.0]
    assert Median("upper")(x).tolist() == [4.0, 7.0]
    assert Median("mean")(x).tolist() == [3.0, 6.5]


def test_the_default_is_the_lower_value_of_models_as_in_bobas_code(draw):
    """torch.median of the clients' models w - u is w less our median."""
    updates = torch.randn(10, D, generator=draw, dtype=torch.float64)
    torch.testing.assert_close(1 - Median()(updates), (1 - updates).median(0).values, rtol=0, atol=1e-15)
    assert conf.compose("aggregator=median").aggregator.middle == "upper"


def test_refuses_another_middle():
    with pytest.raises(SettingError, match="lower, upper, mean, got 'left'"):
        Median("left")(torch.ones(2, 2))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n", [7, 8])
def test_is_an_entry_of_the_column_in_any_dtype(dtype, n, draw):
    x = torch.randn(n, 500, generator=draw).to(dtype)
    before = x.clone()
    y = Median("lower")(x)
    assert y.dtype == dtype
    assert torch.equal(y, x.double().median(0).values.to(dtype))
    assert torch.equal(x, before)


@pytest.mark.parametrize("entries", [1, 7 * 64, 2**19])
def test_chunks_do_not_show(monkeypatch, draw, entries):
    monkeypatch.setattr(module, "_ENTRIES_CPU", entries)
    x = torch.randn(7, 300, generator=draw)
    assert torch.equal(Median()(x), x.median(0).values)


def test_every_column_is_sorted_once_and_in_its_place(draw):
    x = torch.randn(5, 250_000, generator=draw)
    for rank in range(5):
        assert torch.equal(reduce_columns(x, lambda values, rank=rank: values[:, rank]), x.sort(0).values[rank])


def test_an_error_in_a_thread_is_raised(draw):
    with pytest.raises(ZeroDivisionError):
        reduce_columns(torch.randn(5, 250_000, generator=draw), lambda values: values[:, 1 // 0])


def test_other_devices_sort_in_chunks_too(monkeypatch):
    monkeypatch.setattr(module, "_ENTRIES_GPU", 12)
    medians = reduce_columns(torch.empty(4, 10, device="meta"), lambda values: values[:, 1])
    assert medians.shape == (10,)
    assert medians.device.type == "meta"


def test_takes_other_layouts_and_rows_with_a_gradient(draw):
    x = torch.randn(40, 9, generator=draw)
    expected = x.T.median(0).values
    assert torch.equal(Median()(x.T), expected)
    assert torch.equal(Median()(x.T.clone().requires_grad_()), expected)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_drops_rows_that_are_not_finite(bad, draw):
    """Kept, one inf would shift the median of 6 rows to that of 7, two opposite ones would cancel in a sum."""
    x = torch.randn(8, D, generator=draw)
    x[1, 2], x[6] = bad, -bad
    assert torch.equal(Median()(x), Median()(x[[0, 2, 3, 4, 5, 7]]))


def test_keeps_finite_rows_whose_sum_overflows():
    x = torch.tensor([[3e38, 3e38], [1.0, 2.0], [0.0, 0.0]])
    assert Median()(x).tolist() == [1.0, 2.0]
    assert Median("mean")(x[:2]).isfinite().all()
    assert Median("mean")(torch.full((2, 4), 3e38)).tolist() == x[0].repeat(2).tolist()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 14),
    hostile.lists(6, least=0),
    st.integers(0, 99),
    st.sampled_from([1, None]),
    st.sampled_from(MIDDLES),
)
def test_stays_within_the_honest_values(n, values, seed, entries, middle):
    values = values[: (n - 1) // 2]
    honest = torch.randn(n - len(values), D, generator=torch.Generator().manual_seed(seed))
    x = hostile.rows(honest, values, entries)
    y = Median(middle)(x)
    assert (honest.min(0).values <= y).all()
    assert (y <= honest.max(0).values).all()


def test_refuses_what_is_no_matrix_of_numbers():
    with pytest.raises(SettingError, match="updates must be a matrix"):
        Median()(torch.zeros(0, 3))
    with pytest.raises(SettingError, match="updates must be floating point"):
        Median()(torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(SettingError, match="median needs at least one update without NaN and inf, got none among 2"):
        Median()(torch.tensor([[torch.nan, 1.0], [1.0, torch.inf]]))
