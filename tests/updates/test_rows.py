"""What can be asked of a matrix of rows."""

import math

import numpy as np
import pytest
import torch

from lightning_fl import SettingError, Updates
from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.rows import row_norms
from tests.adversary import reference

NAN, INF = float("nan"), float("inf")


def test_finite_rows_need_one():
    with pytest.raises(SettingError, match=r"krum needs at least one update without NaN and inf, got none among 2"):
        finite_rows(torch.tensor([NAN, INF]).double(), "krum")


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("d", [1, 5, 1024, 1025, 9000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_row_norms_are_those_of_float64(p, d, dtype, draw):
    x = (torch.randn(4, d, generator=draw) * torch.tensor([[1e-35], [1e-3], [1.0], [1e35]])).to(dtype)
    expected = np.linalg.norm(x.double().numpy(), p, axis=1)
    np.testing.assert_allclose(row_norms(x, p).numpy(), expected, rtol=1e-6)
    x[0, d // 2], x[1, 0] = torch.nan, torch.inf
    assert row_norms(x, p).isfinite().tolist() == [False, False, True, True]


@pytest.mark.parametrize("entries", [1, 60, 10**6])
def test_mean_and_deviation_do_not_depend_on_the_columns_taken_at_a_time(entries, monkeypatch):
    monkeypatch.setattr("lightning_fl.updates.rows._SPREAD_CPU", entries)
    x = reference.problem("badly scaled")
    mean, std = Updates(torch.tensor(x)).mean_and_std
    np.testing.assert_allclose(mean, [sum(column) / len(x) for column in x.T], rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(std, reference.std(x), rtol=1e-12)
