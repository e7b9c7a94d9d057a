import numpy as np
import pytest
import torch

from lightning_fl import Updates
from lightning_fl.aggregator.bulyan import Bulyan, bulyan_selection
from lightning_fl.contract import world
from lightning_fl.updates.products import gram_matrix, squared_distances
from tests.aggregator import reference
from tests.aggregator import reference_peers as peers

D = 6


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize(("n", "f"), [(11, 0), (11, 2), (12, 2), (15, 3), (20, 4), (3, 0), (30, 4)])
@pytest.mark.parametrize("name", reference.PROBLEMS)
def test_agrees_with_the_loop(name, n, f, once):
    x = reference.problem(name, n, D)
    np.testing.assert_allclose(Bulyan(f, once)(torch.as_tensor(x)).numpy(), peers.bulyan(x, f, once)[0], rtol=1e-12)


def test_literal():
    """Rows 5, 1, 4, 2, 0 are selected; of 0, 0.2, 0.7, 1, 1.1 the middle three, of 0, 0.5, 1.1, 2, 3 those around 1.1.

    The scores' order at once is 5, 1, 2, 3, 0, and (0.6333, 0.9667) follows; a mean of the selection is (0.6, 1.32), a
    mean of distances to the median (0.2, 0.5).
    """
    x = torch.tensor(reference.X, dtype=torch.float64)
    assert peers.bulyan(reference.X, 1)[1] == [5, 1, 4, 2, 0]
    distances = squared_distances(gram_matrix(x))
    assert bulyan_selection(distances, 1).tolist() == [5, 1, 4, 2, 0]
    assert bulyan_selection(distances, 1, once=True).tolist() == [5, 1, 2, 3, 0]
    torch.testing.assert_close(Bulyan(1)(x), torch.tensor([2.8 / 3, 3.6 / 3], dtype=x.dtype), rtol=1e-12, atol=0)
    torch.testing.assert_close(Bulyan(1, True)(x), torch.tensor([1.9 / 3, 2.9 / 3], dtype=x.dtype), rtol=1e-12, atol=0)


@pytest.mark.parametrize("f", range(1, 4))
@pytest.mark.parametrize("together", [False, True])
def test_n_minus_f_equal_rows_win(f, together, draw):
    """Copies of one other row are never selected twice, and drop out around the median."""
    x = 1e3 * torch.randn(15, D, generator=draw)
    x[f:] = torch.linspace(-1, 1, D)
    if together:
        x[:f] = x[0]
    torch.testing.assert_close(Bulyan(f)(x[torch.randperm(15, generator=draw)]), x[-1], rtol=3e-7, atol=0)


def test_trusts_those_selected(draw):
    x = torch.randn(12, world.D, generator=draw)
    x[4] = torch.nan
    for once in [False, True]:
        aggregation = Bulyan(f=2, once=once).aggregate(Updates(x), world.oracle())
        assert aggregation.weights is None
        assert sorted(aggregation.trust.tolist()) == [0] * 3 + [1 / 9] * 9
        assert aggregation.trust[4] == 0
