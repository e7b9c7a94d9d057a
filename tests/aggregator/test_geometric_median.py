import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_fl.aggregator import geometric_median as module
from lightning_fl.aggregator.geometric_median import GeometricMedian, geometric_median_weights
from lightning_fl.contract import hostile
from lightning_fl.updates.products import gram_matrix
from tests.aggregator import reference

N, D, EPS = 11, 5, 1e-5
SHARES = {"equal": np.ones(N), "unequal": np.arange(1.0, N + 1), "one heavy": np.array([1.0] * (N - 1) + [9.0])}


def gap(y, x, weights=None):
    """F(y) - F of the best point that the loop finds, in units of the radius."""
    x, weights = np.asarray(x, dtype=np.float64), np.ones(len(x)) if weights is None else np.asarray(weights)
    weights = weights / weights.sum()
    radius = reference.majority_radius(x, weights)[0]
    best = reference.distance_sum(reference.geometric_median(x, weights), x, weights)
    return (reference.distance_sum(np.asarray(y, dtype=np.float64), x, weights) - best) / radius


@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("name", reference.PROBLEMS)
def test_agrees_with_the_loop(name, shares):
    x, weights = reference.problem(name, N, D), SHARES[shares]
    if name == "tied":  # more than half of the weight on one point: that point
        y = GeometricMedian()(torch.as_tensor(x), weights=torch.as_tensor(weights))
        np.testing.assert_allclose(y.numpy(), reference.geometric_median(x, weights / weights.sum()), rtol=1e-14)
    else:
        assert gap(GeometricMedian()(torch.as_tensor(x), weights=torch.as_tensor(weights)), x, weights) <= EPS


@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("name", reference.PROBLEMS)
def test_many_rows_by_conjugate_gradients_and_in_parts_agree_with_the_loop(name, shares, monkeypatch):
    monkeypatch.setattr(module, "_MOST_SOLVED", 0)
    monkeypatch.setattr("lightning_fl.updates.products._PART", 3 * N)
    test_agrees_with_the_loop(name, shares)


def test_float32_rows_give_the_float64_answer():
    x = torch.as_tensor(reference.problem("random", N, D)).float()
    assert gap(GeometricMedian()(x), x) <= EPS + 1e-6


@pytest.mark.parametrize("eps", [1e-1, 1e-3, 1e-5, 1e-7])
def test_eps_bounds_the_gap(eps):
    x = reference.problem("random", N, D)
    assert gap(GeometricMedian(eps=eps)(torch.as_tensor(x)), x) <= eps


def test_golden_value():
    """The Fermat point (0.6958, 0.7512).  The mean is (1.3333, 1), the coordinate-wise median (0, 0)."""
    x = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 3.0]], dtype=torch.float64)
    y = GeometricMedian(eps=1e-8)(x)
    np.testing.assert_allclose(y.numpy(), [0.69578853, 0.75117611], atol=1e-7)
    assert (x - y).norm(dim=1).mean().item() == pytest.approx(2.25547752, abs=1e-8)


def test_weights_count_as_copies_do():
    x = torch.as_tensor(reference.problem("random", N, D))
    copies = torch.arange(N) % 3 + 1
    repeated = GeometricMedian(eps=1e-7)(x.repeat_interleave(copies, dim=0))
    torch.testing.assert_close(GeometricMedian(eps=1e-7)(x, weights=copies.double()), repeated, rtol=0, atol=1e-4)


def hexagon(share):
    """Six points around one that holds a share of the pull with which the others, two of them doubled, act on it."""
    angles = torch.arange(6) * torch.pi / 3
    x = torch.cat([torch.zeros(1, 2), torch.stack([angles.cos(), angles.sin()], 1)]).double()
    return x, torch.tensor([share * 3**0.5, 2, 2, 1, 1, 1, 1], dtype=torch.float64)


@pytest.mark.parametrize("share", [1.5, 1.0, 1 - 1e-12, 1 - 1e-6, 1 - 1e-5, 1 - 1e-4, 1 - 1e-2])
def test_certifies_a_median_on_or_near_a_row(share):
    """Weiszfeld crawls here: the force on the row is its own weight, or a little more."""
    x, weights = hexagon(share)
    y = GeometricMedian()(x, weights=weights)
    assert gap(y, x, weights) <= EPS
    if share >= 1:
        assert y.norm() <= EPS


MANY = {
    "one row": torch.tensor([[3.0, 4.0]]),
    "two rows": torch.tensor([[0.0, 0.0], [3.0, 4.0]]),
    "all equal": torch.tensor([[3.0, 4.0]]).expand(9, 2),
    "all zero": torch.zeros(4, 3),
    "most equal": torch.cat([torch.tensor([[3.0, 4.0]]).expand(5, 2), torch.eye(2), 1e30 * torch.eye(2)]),
    "half equal": torch.cat([torch.tensor([[3.0, 4.0]]).expand(4, 2), torch.eye(2), -9 * torch.eye(2)]),
    "grid": torch.cartesian_prod(torch.arange(3.0), torch.arange(4.0)),
    "line": torch.tensor([[1.0, 2.0]]) * torch.tensor([[-4.0], [0.0], [1.0], [7.0], [9.0], [1e4]]) + 5,
    "nearly a line": torch.outer(torch.arange(9.0), torch.ones(4)) + 1e-4 * torch.eye(9, 4),
}


@pytest.mark.parametrize("name", MANY)
def test_certifies_degenerate_rows(name):
    x = MANY[name].double()
    y = GeometricMedian()(x)
    weights = np.full(len(x), 1 / len(x))
    best = reference.geometric_median(x.numpy(), weights)
    radius = reference.majority_radius(x.numpy(), weights)[0]
    found = reference.distance_sum(y.numpy(), x.numpy(), weights)
    assert found <= reference.distance_sum(best, x.numpy(), weights) + EPS * radius + 1e-14 * abs(x).max()


def test_copies_are_copies_despite_rounding(draw):
    """Inner products of equal long rows differ in the last digits; more than half of them are the median exactly."""
    x = 1e3 + torch.randn(9, 20_000, generator=draw)
    x[3:] = x[3]
    torch.testing.assert_close(GeometricMedian()(x), x[3], rtol=1e-6, atol=0)
    assert geometric_median_weights(gram_matrix(x), torch.ones(9))[:3].eq(0).all()


@pytest.mark.parametrize("huge", [1e15, 1e30, 3e38])
def test_huge_rows_only_pull(huge):
    """f rows far away in one direction: the force on the others, not the distance, counts, and digits survive."""
    x = torch.as_tensor(reference.problem("random", N, D))
    near, far = x.clone(), x.clone()
    near[:4], far[:4] = 1e9, huge
    torch.testing.assert_close(GeometricMedian()(far), GeometricMedian()(near), rtol=0, atol=1e-4)
    assert gap(GeometricMedian()(far), near) <= EPS + 1e-7  # F near 1e9 keeps 7 digits


def test_coefficients_are_a_convex_combination_and_skip_what_does_not_count():
    x = torch.as_tensor(reference.problem("random", N, D))
    x[2, 1], x[5, 0] = torch.nan, torch.inf
    shares = torch.as_tensor(SHARES["unequal"])
    shares[7] = 0
    a = geometric_median_weights(gram_matrix(x), shares)
    assert a.min() >= 0
    assert a.sum().item() == pytest.approx(1)
    assert a[[2, 5, 7]].eq(0).all()
    rest = torch.tensor([0, 1, 3, 4, 6, 8, 9, 10])
    assert gap(a[rest] @ x[rest], x[rest], shares[rest]) <= EPS


def test_out_of_steps_it_still_beats_every_row(monkeypatch):
    monkeypatch.setattr(module, "_MOST_STEPS", 1)
    x = torch.as_tensor(reference.problem("random", N, D))
    distances = torch.cdist(torch.cat([GeometricMedian()(x)[None], x]), x).mean(1)
    assert distances.argmin() == 0


@settings(max_examples=60, deadline=None)
@given(
    hostile.lists((N - 1) // 2, least=0, also=["away"]),
    st.floats(-3, 30),
    st.integers(0, 99),
    st.sampled_from([1, None]),
)
def test_hostile_rows_move_it_no_further_than_the_paper_says(values, exponent, seed, entries):
    """(68) about the honest mean: ||y - m|| <= (2 sum_honest alpha_i ||z_i - m|| + gap) / (2C - 1)."""
    honest = torch.randn(N - len(values), D, generator=torch.Generator().manual_seed(seed))
    x = hostile.rows(honest, values, entries, 10**exponent)
    y = GeometricMedian()(x)
    assert y.isfinite().all()
    mean, share = honest.mean(0), len(honest) / N
    spread = torch.cdist(honest, honest).max()
    bound = (2 * (honest - mean).norm(dim=1).sum() / N + EPS * spread) / (2 * share - 1)
    assert (y - mean).norm() <= bound * (1 + 1e-5)


def test_many_rows_take_few_steps(monkeypatch):
    steps, solve = [], module._solve
    monkeypatch.setattr(module, "_MOST_SOLVED", 0)
    monkeypatch.setattr(module, "_solve", lambda *given: steps.append(0) or solve(*given))
    draw = torch.Generator().manual_seed(2)
    x = torch.randn(200, 1, generator=draw, dtype=torch.float64) * torch.tensor([[1.0, 1e-3]])
    x[:, 1] += 1e-4 * torch.randn(200, generator=draw, dtype=torch.float64)
    GeometricMedian(eps=1e-7)(x)
    assert len(steps) <= 10
