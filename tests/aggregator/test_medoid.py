import pytest
import torch

from lightning_fl.aggregator.medoid import Medoid, medoid_weights
from lightning_fl.updates.products import gram_matrix
from tests.aggregator import reference

N, D = 9, 5


def test_literal():
    """The sums of distances are 23.5 20.4 22.7 21.9 25.8 20.0 83.0; squared, row 1 would have the least."""
    assert medoid_weights(gram_matrix(torch.tensor(reference.X))).tolist() == [0, 0, 0, 0, 0, 1, 0]


@pytest.mark.parametrize("seed", range(10))
def test_huge_rows_do_not_drown_the_others(seed):
    """Opposite huge rows add the same to all sums; float64 sums of 1e30 would all be equal."""
    x = torch.randn(N, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    end = torch.full((1, D), 1e30, dtype=torch.float64)
    torch.testing.assert_close(Medoid()(torch.cat([end, x, -end])), Medoid()(x))


@pytest.mark.parametrize("unit", [1.0, 0.1, 1e12, 1e-12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_of_equal_sums_the_first_counts(dtype, unit):
    """Whatever rounding makes of them."""
    for rows, first in [([9, 1, 2, -5], 1), ([1, 2, -2, 3], 0), ([3, 7, 5, 6], 2)]:
        x = torch.tensor([[unit * value] for value in rows], dtype=dtype)
        assert medoid_weights(gram_matrix(x.double())).tolist() == [i == first for i in range(4)]
        assert torch.equal(Medoid()(x), x[first])
