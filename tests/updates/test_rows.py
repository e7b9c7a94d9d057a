"""What can be asked of a matrix of rows."""

import math

import numpy as np
import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.updates.rows import finite_rows, row_norms

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
