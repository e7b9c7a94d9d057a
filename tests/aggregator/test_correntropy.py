import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_fl.aggregator import correntropy as module
from lightning_fl.aggregator.correntropy import Correntropy, correntropy_weights
from lightning_fl.contract import hostile
from lightning_fl.updates.products import gram_matrix
from tests.aggregator import reference

N, D = 11, 5
SHARES = {"equal": np.ones(N), "unequal": np.arange(1.0, N + 1)}


@pytest.mark.parametrize("bandwidth", [None, 0.5, 3.0])
@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("name", reference.PROBLEMS)
def test_agrees_with_the_loop(name, shares, bandwidth):
    x, weights = reference.problem(name, N, D), SHARES[shares] / SHARES[shares].sum()
    radius, start = reference.majority_radius(x, weights)
    y = Correntropy(bandwidth, eps=1e-7)(torch.as_tensor(x), weights=torch.as_tensor(weights))
    if name == "tied" and bandwidth is None:  # the radius is 0
        np.testing.assert_allclose(y.numpy(), x[start], rtol=1e-14)
    else:
        width = radius if bandwidth is None else bandwidth
        np.testing.assert_allclose(
            y.numpy(), reference.maximum_correntropy(x, weights, width, start), rtol=0, atol=1e-5 * width
        )


def test_float32_rows_give_the_float64_answer():
    x = torch.as_tensor(reference.problem("random", N, D))
    torch.testing.assert_close(Correntropy()(x.float()).double(), Correntropy()(x), rtol=1e-4, atol=1e-4)


def test_literal_tells_the_kernels_apart():
    """The kernel exp(-r^2 / s^2) gives 1.0583, exp(-r^2 / (2 s)) 1.0012, exp(-r / s) 1.5651, one step alone 1.3522."""
    x = torch.tensor([[0.0], [1.0], [2.0], [9.0]], dtype=torch.float64)
    assert Correntropy(bandwidth=4.0, eps=1e-9)(x).item() == pytest.approx(1.45488, abs=1e-5)
    assert Correntropy()(x).item() == pytest.approx(1.0, abs=1e-5)  # s = 1: 0, 1 and 2 balance, 9 is out of sight


@pytest.mark.parametrize("n", [4, 18, 50, 100])
def test_half_of_the_updates_are_not_more_than_half(n):
    """The ball that holds more reaches from 0 to 1, and s = 1 has one maximum in between.

    9 shares of 1/18, added up, are above 1/2; so are those of 50 and 100.
    """
    x = (torch.arange(n) % 2).double()[:, None]
    assert Correntropy(eps=1e-9)(x).item() == pytest.approx(0.5, abs=1e-6)


def test_eps_is_relative_to_the_bandwidth():
    x = torch.as_tensor(reference.problem("random", N, D))
    torch.testing.assert_close(Correntropy()(1e-6 * x), 1e-6 * Correntropy()(x), rtol=1e-9, atol=0)


def test_bandwidth_goes_from_a_row_to_the_mean():
    x = torch.as_tensor(reference.problem("random", N, D))
    start = reference.majority_radius(x.numpy(), np.full(N, 1 / N))[1]
    for tiny in (1e-3, 1e-300):
        torch.testing.assert_close(Correntropy(bandwidth=tiny)(x), x[start])
    for large in (1e6, 1e300):
        torch.testing.assert_close(Correntropy(bandwidth=large)(x), x.mean(0), rtol=0, atol=1e-6)


def test_eps_bounds_the_last_step():
    x = torch.as_tensor(reference.problem("random", N, D))
    weights, exact = np.full(N, 1 / N), Correntropy(eps=1e-9)(x).numpy()
    radius = reference.majority_radius(x.numpy(), weights)[0]
    for eps in (1e-1, 1e-3, 1e-5):
        y = Correntropy(eps=eps)(x).numpy()
        again = reference.maximum_correntropy(np.vstack([x.numpy(), y]), np.append(weights, 0.0), radius, N, steps=1)
        assert np.sqrt(np.sum((again - y) ** 2)) <= eps * radius
    assert np.sqrt(np.sum((exact - y) ** 2)) <= 1e-4 * radius


def test_out_of_steps_it_returns_the_last(monkeypatch):
    monkeypatch.setattr(module, "_MOST_STEPS", 3)
    x = reference.problem("random", N, D)
    weights = np.full(N, 1 / N)
    expected = reference.maximum_correntropy(x, weights, *reference.majority_radius(x, weights), steps=3)
    np.testing.assert_allclose(Correntropy()(torch.as_tensor(x)).numpy(), expected)


def test_coefficients_are_a_convex_combination_and_skip_what_does_not_count():
    x = torch.as_tensor(reference.problem("random", N, D))
    x[2, 1], x[5, 0] = torch.nan, torch.inf
    shares = torch.as_tensor(SHARES["unequal"])
    shares[7] = 0
    a = correntropy_weights(gram_matrix(x), shares)
    rest = torch.tensor([0, 1, 3, 4, 6, 8, 9, 10])
    assert a[[2, 5, 7]].eq(0).all()
    assert a.min() >= 0
    assert a.sum().item() == pytest.approx(1)
    torch.testing.assert_close(a[rest] @ x[rest], Correntropy()(x[rest], weights=shares[rest]))


@settings(max_examples=60, deadline=None)
@given(hostile.lists(3, least=0, also=["away"]), st.floats(-3, 30), st.integers(0, 99), st.sampled_from([1, None]))
def test_hostile_rows_leave_it_near_an_honest_one(values, exponent, seed, entries):
    """The correntropy at the start is at least exp(-1/2) / 2 = 0.303, and does not fall.

    At a point r away from every honest row it is at most b + (1 - b) exp(-r^2 / (2 s^2)) for a Byzantine share b; so
    r <= s sqrt(2 log((1 - b) / (0.303 - b))), where s is at most the honest rows' diameter.
    """
    honest = torch.randn(12 - len(values), D, generator=torch.Generator().manual_seed(seed))
    x = hostile.rows(honest, values, entries, 10**exponent)
    share = len(values) / 12
    y = Correntropy()(x)
    assert y.isfinite().all()
    reach = np.sqrt(2 * np.log((1 - share) / (np.exp(-0.5) / 2 - share)))
    assert (honest - y).norm(dim=1).min() <= reach * torch.cdist(honest, honest).max()
