import pytest
import torch

from lightning_fl.aggregator.median import Median
from lightning_fl.contract import conf
from lightning_fl.updates import ordered as module
from lightning_fl.updates.ordered import reduce_columns

D = 6


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


def test_keeps_finite_rows_whose_sum_overflows():
    x = torch.tensor([[3e38, 3e38], [1.0, 2.0], [0.0, 0.0]])
    assert Median()(x).tolist() == [1.0, 2.0]
    assert Median("mean")(x[:2]).isfinite().all()
    assert Median("mean")(torch.full((2, 4), 3e38)).tolist() == x[0].repeat(2).tolist()
