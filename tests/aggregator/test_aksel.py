import numpy as np
import pytest
import torch

from lightning_fl.aggregator.aksel import Aksel, aksel_weights
from tests.aggregator import reference

N, F = 9, 3
X = torch.tensor(reference.X)


def test_literal():
    """The median is (1, 1.1); rows 0, 1, 2, 3 and 5 are nearest to it."""
    torch.testing.assert_close(Aksel(2)(X), torch.tensor([0.78, 0.98], dtype=torch.float64))


def test_of_even_many_the_median_is_the_mean_of_two():
    """The pivot is 2.4: rows 1, 2 and 3 are nearest.  The lower one, 1.8, would choose rows 0, 1 and 2."""
    x = torch.tensor([[0.0], [1.8], [3.0], [4.0]])
    assert Aksel(1)(x).item() == pytest.approx((1.8 + 3 + 4) / 3)


def test_of_equally_near_rows_the_first_counts():
    assert aksel_weights(torch.tensor([2.0, 1.0, torch.inf, 2.0, 2.0]).double(), 2).tolist() == [
        1 / 3,
        1 / 3,
        0,
        1 / 3,
        0,
    ]


def test_every_column_of_a_long_row_counts(draw):
    """Also those of another part than the first 4,096."""
    x = torch.randn(N, 10_000, generator=draw)
    x[:, :5000] = 0
    np.testing.assert_allclose(Aksel(F)(x), reference.aksel(x.double().numpy(), F), rtol=2e-6, atol=1e-6)
