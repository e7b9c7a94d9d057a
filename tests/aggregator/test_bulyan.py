import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_fl import SettingError, Updates
from lightning_fl.aggregator.bulyan import Bulyan, bulyan_selection
from lightning_fl.contract import hostile, world
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
    x = torch.tensor(peers.X, dtype=torch.float64)
    assert peers.bulyan(peers.X, 1)[1] == [5, 1, 4, 2, 0]
    distances = squared_distances(gram_matrix(x))
    assert bulyan_selection(distances, 1).tolist() == [5, 1, 4, 2, 0]
    assert bulyan_selection(distances, 1, once=True).tolist() == [5, 1, 2, 3, 0]
    torch.testing.assert_close(Bulyan(1)(x), torch.tensor([2.8 / 3, 3.6 / 3], dtype=x.dtype), rtol=1e-12, atol=0)
    torch.testing.assert_close(Bulyan(1, True)(x), torch.tensor([1.9 / 3, 2.9 / 3], dtype=x.dtype), rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_keeps_dtype_and_argument(dtype, draw):
    x = torch.randn(23, 500, generator=draw).to(dtype)
    before = x.clone()
    y = Bulyan(5)(x)
    assert y.dtype == dtype
    assert torch.equal(x, before)
    expected = torch.as_tensor(peers.bulyan(x.double().numpy(), 5)[0]).to(dtype)
    torch.testing.assert_close(y, expected, rtol=4 * torch.finfo(dtype).eps, atol=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("f", range(1, 4))
@pytest.mark.parametrize("together", [False, True])
def test_n_minus_f_equal_rows_win(f, together, draw):
    """Copies of one other row are never selected twice, and drop out around the median."""
    x = 1e3 * torch.randn(15, D, generator=draw)
    x[f:] = torch.linspace(-1, 1, D)
    if together:
        x[:f] = x[0]
    torch.testing.assert_close(Bulyan(f)(x[torch.randperm(15, generator=draw)]), x[-1], rtol=3e-7, atol=0)


def test_non_finite_rows_count_among_the_f(draw):
    x = torch.randn(12, D, generator=draw, dtype=torch.float64)
    x[3, 1] = torch.nan
    np.testing.assert_allclose(Bulyan(2)(x).numpy(), peers.bulyan(np.delete(x.numpy(), 3, 0), 1)[0], rtol=1e-12)
    x[[0, 5, 8]] = torch.inf  # four are known: nobody is left to drop
    torch.testing.assert_close(Bulyan(2)(x), x[x.isfinite().all(1)].mean(0))
    x[1:] = torch.nan
    x[0] = 3.0
    assert torch.equal(Bulyan(2)(x), x[0])


def test_how_huge_a_row_is_does_not_matter(draw):
    x = torch.randn(13, D, generator=draw)
    results = []
    for huge in [1e6, 1e30]:
        x[2], x[7] = huge, -huge
        results.append(Bulyan(2)(x))
    torch.testing.assert_close(*results, rtol=1e-6, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 16), hostile.lists(3, least=0), st.integers(0, 99), st.sampled_from([1, None]), st.booleans())
def test_stays_near_the_honest_values(n, values, seed, entries, once):
    """The median of the selection lies among honest values, and at least beta honest ones are no farther from it."""
    f = (n - 3) // 4
    values = values[:f]
    honest = torch.randn(n - len(values), D, generator=torch.Generator().manual_seed(seed))
    x = hostile.rows(honest, values, entries)
    y = Bulyan(f, once)(x)
    low, high = honest.min(0).values, honest.max(0).values
    assert (y - (low + high) / 2).abs().le(1.5 * (high - low) + 1e-6).all()


def test_trusts_those_selected(draw):
    x = torch.randn(12, world.D, generator=draw)
    x[4] = torch.nan
    for once in [False, True]:
        aggregation = Bulyan(f=2, once=once).aggregate(Updates(x), world.oracle())
        assert aggregation.weights is None
        assert sorted(aggregation.trust.tolist()) == [0] * 3 + [1 / 9] * 9
        assert aggregation.trust[4] == 0


@pytest.mark.parametrize(("n", "f"), [(10, 2), (2, 0)])
def test_refuses_f(n, f):
    match = rf"bulyan needs f >= 0 and n >= 4f \+ 3 updates, got n={n} and f={f}; change f"
    with pytest.raises(SettingError, match=match):
        Bulyan(f, False).check(n, 2)
    Bulyan(2, False).check(11, 2)
    with pytest.raises(SettingError, match="bulyan needs f >= 0, got -1"):
        Bulyan(-1)


def test_refuses_what_is_no_matrix_of_numbers():
    with pytest.raises(SettingError, match="updates must be a matrix"):
        Bulyan(0)(torch.zeros(3))
    with pytest.raises(SettingError, match="updates must be floating point"):
        Bulyan(0)(torch.zeros(3, 3, dtype=torch.int64))
    with pytest.raises(SettingError, match="bulyan needs at least one update without NaN and inf, got none"):
        Bulyan(0)(torch.full((3, 2), torch.nan))
