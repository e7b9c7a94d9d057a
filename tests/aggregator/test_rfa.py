import numpy as np
import pytest
import torch

from lightning_fl.aggregator.geometric_median import GeometricMedian
from lightning_fl.aggregator.rfa import Rfa, rfa_weights
from lightning_fl.updates.products import gram_matrix
from tests.aggregator import reference

N, D = 9, 5
X = torch.tensor(reference.X)


def test_literal():
    """The first row lies at the start, 0, so that nu is its distance in every step that stays near."""
    for nu, expected in [
        (0.1, [0.88070735, 0.82321239]),
        (1e-6, [7.454e-5, 6.686e-5]),
        (2.0, [1.05489677, 1.06730709]),
    ]:
        torch.testing.assert_close(Rfa(nu=nu)(X), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-7)


def test_many_steps_lead_to_the_geometric_median():
    torch.testing.assert_close(Rfa(nu=1e-3, n_iterations=3000)(X), GeometricMedian()(X), rtol=0, atol=1e-3)
    assert (Rfa()(X) - GeometricMedian()(X)).norm() > 0.1  # three do not


@pytest.mark.parametrize("seed", range(5))
def test_moves_with_scale_and_nu_but_not_with_a_shift(seed):
    """The start is 0."""
    x = torch.randn(N, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    torch.testing.assert_close(Rfa(nu=0.3)(3 * x), 3 * Rfa(nu=0.1)(x))
    assert (Rfa()(x + 1) - Rfa()(x) - 1).norm() > 1e-3


def test_rows_that_share_an_offset_keep_their_distances():
    """From the second step on, distances of 1 to z count, beside an offset of 1e7."""
    draw = torch.Generator().manual_seed(0)
    x = (torch.randn(N, D, generator=draw, dtype=torch.float64) * 2**20).round() / 2**20 + 1e7
    np.testing.assert_allclose(Rfa()(x).numpy(), reference.rfa(x.numpy(), np.ones(N), 0.1, 3), rtol=0, atol=1e-6)


def test_rows_that_do_not_count():
    """Those with NaN, inf or weight 0."""
    x = torch.as_tensor(reference.problem("random", N, D))
    x[2], x[5, 1] = torch.nan, torch.inf
    weights = torch.ones(N).index_fill(0, torch.tensor([7]), 0)
    keep = x.isfinite().all(1) & (weights > 0)
    torch.testing.assert_close(Rfa()(x, weights=weights), Rfa()(x[keep]))
    assert rfa_weights(gram_matrix(x, torch.zeros(1, D).double()), weights)[~keep].tolist() == [0, 0, 0]
