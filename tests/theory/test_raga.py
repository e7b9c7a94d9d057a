# ruff: noqa: N803, N806 (the paper's letters)
from dataclasses import replace
from fractions import Fraction
from math import inf

import pytest
import torch

from lightning_fl.aggregator.geometric_median import GeometricMedian
from lightning_fl.errors import SettingError
from lightning_fl.theory.base import gradient_bound, heterogeneity
from lightning_fl.theory.raga import (
    Constants,
    loss_gap_bound,
    mean_square_gradient_bound,
    median_norm_bound,
    median_square_bound,
)
from tests.theory.problems import ATTACKS, Quadratics, Waves, forge, normal

EPS = 1e-6  # of the bounds; the rule's own is relative to the honest rows' diameter and set to 1e-9
CONSTANTS = Constants(L=2.0, G=3.0, sigma=0.5, theta=0.25, C_bar=0.125, eps=0.0625)


def run(problem, b, w, rates, local_rates, sigma, attack, draw):
    """Run RAGA with noise of length sigma and the last b clients Byzantine; return w^1 .., G and theta."""
    points, G, theta = [w], 0.0, 0.0
    for eta, local in zip(rates, local_rates, strict=True):
        models, uploads, objective = w.expand_as(problem.a), torch.zeros_like(problem.a), problem.gradient(w)
        theta = max(theta, heterogeneity(problem.gradients(w)[:-b], objective))
        for rate in local:
            full = problem.gradients(models)
            G = max(G, gradient_bound(full[:-b]))
            noise = normal(draw, *full.shape)
            step = full + sigma * noise / noise.norm(dim=1, keepdim=True)
            models, uploads = models - rate * step, uploads + step / len(local)
        honest = uploads[:-b]
        assert 1e-9 * torch.cdist(honest, honest).max() < EPS
        rows = torch.cat([honest, forge(attack, honest, objective, b, draw)])
        w = w - eta * GeometricMedian(eps=1e-9)(rows, weights=problem.alphas)
        points.append(w)
    return points, G, theta


def runs(problem, b, start, rates, local_rates, sigma, attack, seeds=3):
    """Run it for some seeds; return the points of each and constants that hold for all."""
    records = [
        run(problem, b, start, rates, local_rates, sigma, attack, torch.Generator().manual_seed(seed))
        for seed in range(seeds)
    ]
    points, G, theta = zip(*records, strict=True)
    C_bar = problem.alphas[-b:].sum().item()
    return points, Constants(problem.curvatures[1], max(G), sigma, max(theta), C_bar, EPS)


def check_smooth(problem, points, constants, rates, local_rates):
    """Check (21) on the mean over runs."""
    mean = sum(
        eta * problem.gradient(w).square().sum().item() / sum(rates) / len(points)
        for run in points
        for eta, w in zip(rates, run[:-1], strict=True)
    )
    drop = problem.loss(points[0][0]) - sum(problem.loss(run[-1]) for run in points) / len(points)
    bound = mean_square_gradient_bound(rates, local_rates, drop, constants)
    assert bound.reason is None
    assert mean <= bound.value


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("seed", range(6))
def test_both_theorems_hold_on_quadratics(attack, seed):
    draw = torch.Generator().manual_seed(seed)
    problem, b, K = Quadratics.draw(8, 3, draw, mu=0.5, L=1.0, spread=0.1 * seed), 1 + seed % 3, 1 + seed % 4
    mu, L = problem.curvatures
    rates = [[0.4, 0.9, 1.5][seed % 3] * (mu / L**2 if seed < 3 else 1 / L) / (0.2 * t + 1) ** 0.5 for t in range(8)]
    local_rates = [[eta / K] * K for eta in rates]
    start = problem.minimiser + normal(draw, 3)
    points, constants = runs(problem, b, start, rates, local_rates, 0.05 * seed, attack)
    check_smooth(problem, points, constants, rates, local_rates)

    distance = (start - problem.minimiser).norm().item()
    least = problem.loss(problem.minimiser)
    for t in (1, 4, 8):
        gap = sum(problem.loss(run[t]) for run in points) / len(points) - least
        for lambdas in (None, [0.3] * t):
            bound = loss_gap_bound(rates[:t], local_rates[:t], distance, mu, constants, lambdas)
            assert bound.reason is None or (lambdas is None and max(rates) * mu >= 1)
            assert bound.value is None or gap <= bound.value


@pytest.mark.parametrize("attack", ATTACKS)
def test_theorem_1_holds_on_losses_that_are_not_convex(attack):
    draw = torch.Generator().manual_seed(0)
    problem = Waves.draw(9, 4, draw, spread=0.2)
    rates = [1.2 / (t + 1) ** 0.5 for t in range(8)]  # the first is above 1 / L
    local_rates = [[0.1, 0.05, 0.02]] * 8
    points, constants = runs(problem, 3, 2 * normal(draw, 4).sign(), rates, local_rates, 0.1, attack)
    check_smooth(problem, points, constants, rates, local_rates)


@pytest.mark.parametrize("seed", range(30))
def test_lemma_3_holds(seed):
    draw = torch.Generator().manual_seed(seed)
    h, d = 5 + seed % 4, 1 + seed % 5
    b = int(torch.randint(1, h, (), generator=draw))
    honest = normal(draw, h, d) * 10 ** normal(draw, h, 1) + 3 * normal(draw, d)
    forged = forge(ATTACKS[seed % len(ATTACKS)], honest, honest.mean(0), b, draw)
    alphas = 0.2 + torch.rand(h + b, generator=draw).double()
    alphas /= alphas.sum()
    eps = 1e-6 * torch.cdist(honest, honest).max().item()
    z = GeometricMedian(eps=1e-6)(torch.cat([honest, forged]), weights=alphas).norm().item()
    norms, shares = honest.norm(dim=1), alphas[:h].tolist()
    bound = median_norm_bound(norms.tolist(), shares, eps)
    squares = median_square_bound(norms.square().tolist(), shares, eps)
    if sum(shares) > 0.5:
        assert z <= bound.value
        assert z**2 <= squares.value
    else:
        assert bound.reason == squares.reason == f"not guaranteed: needs C_a > 0.5, got {sum(shares):.6g}"


def test_lemma_3_by_hand_counts_the_solver_s_error():
    # C_a = 3/4, sum alpha ||z|| = 5/4 and sum alpha ||z||^2 = 11/4: (5/2 + 1/2) / (1/2) and (6 * 11/4 + 1/2) / (1/4).
    assert median_norm_bound([1.0, 3.0], [0.5, 0.25], eps=0.5).value == 6
    assert median_square_bound([1.0, 9.0], [0.5, 0.25], eps=0.5).value == 68


def test_a_single_client_shows_that_theorem_1_is_about_the_model_after_the_last_round():
    # F = w^2 / 2 from w^1 = 2 by a step of 1: w^2 = 0 and ||grad F(w^1)||^2 = 4.
    constants = Constants(L=1.0, G=2.0, sigma=0.0, theta=0.0, C_bar=0.0, eps=0.0)
    assert mean_square_gradient_bound([1.0], [[1.0]], 2.0 - 0.0, constants).value == 4
    assert mean_square_gradient_bound([1.0], [[1.0]], 2.0 - 2.0, constants).value < 4  # F(w^1) - F(w^T), as printed


def exact(constants):
    """The constants as fractions, and C_a."""
    numbers = [Fraction(x) for x in (constants.L, constants.G, constants.sigma, constants.theta, constants.eps)]
    return *numbers, 1 - Fraction(constants.C_bar)


def delta(local_rates, h, constants):
    """(22) with its sum over h honest clients of equal weight."""
    L, G, sigma, theta, _, C_a = exact(constants)
    K, alpha = len(local_rates), C_a / h
    drift = sum((k - 1) * sum(eta**2 for eta in local_rates[: k - 1]) for k in range(2, K + 1))
    per_client = 2 * alpha * L**2 * (G**2 + sigma**2) / K * drift + 2 * alpha * theta**2
    return 8 * C_a / (2 * C_a - 1) ** 2 * h * per_client


RATES = [Fraction(3, 4), Fraction(1, 4), Fraction(1, 8)]  # the first above 1 / L
LOCAL = [[Fraction(1, 8), Fraction(1, 4), Fraction(1, 2)], [Fraction(1, 2)], [Fraction(1, 4), Fraction(1, 16)]]
FLOATS = {"rates": [float(eta) for eta in RATES], "local_rates": [[float(eta) for eta in row] for row in LOCAL]}


def test_theorem_1_in_fractions():
    L, G, sigma, _, eps, C_a = exact(CONSTANTS)
    D, Sg, drop = (2 * C_a - 1) ** 2, sum(RATES), Fraction(5, 2)
    value = 2 * drop / Sg
    for eta, local in zip(RATES, LOCAL, strict=True):
        p = eta > 1 / L
        value += eta * delta(local, 7, CONSTANTS) / Sg
        value += 2 * (eta + p * eta**2 * L - p * eta) * eps**2 / (D * Sg)
        value += 8 * C_a**2 * (eta * sigma**2 + (p * eta**2 * L - p * eta) * (G**2 + sigma**2)) / (D * Sg)
    assert mean_square_gradient_bound(**FLOATS, drop=2.5, constants=CONSTANTS).value == pytest.approx(float(value))


def test_theorem_2_in_fractions():
    L, _, sigma, _, eps, C_a = exact(CONSTANTS)
    D, mu, start, lambdas = (2 * C_a - 1) ** 2, Fraction(3, 2), Fraction(9, 4), [Fraction(1, t) for t in (2, 3, 4)]
    gammas = [
        (1 - 2 * eta * mu + L**2 * eta**2) / (1 - lam) for eta, lam in zip(RATES, lambdas, strict=True)
    ]  # gamma^1 .. gamma^{T-1}

    def product(numbers):
        result = Fraction(1)
        for number in numbers:
            result *= number
        return result

    value = L / 2 * start * product(gammas)
    for t, (eta, local) in enumerate(zip(RATES, LOCAL, strict=True)):
        V = delta(local, 7, CONSTANTS) + 8 * sigma**2 * C_a**2 / D + 2 * eps**2 / D
        value += L / 2 * eta**2 / lambdas[t] * V * product(gammas[t + 1 :])
    bound = loss_gap_bound(**FLOATS, distance=1.5, mu=1.5, constants=CONSTANTS, lambdas=[float(x) for x in lambdas])
    assert bound.value == pytest.approx(float(value))


@pytest.mark.parametrize("K", [1, 2, 5])
def test_constant_rates_give_the_remarks_closed_forms(K):
    L, G, sigma, theta, eps, C_bar = 2.0, 3.0, 0.5, 0.25, 0.0625, 0.125
    C_a, D = 1 - C_bar, (1 - 2 * C_bar) ** 2
    rates = [0.5, 0.25, 0.125]  # at most 1 / L
    drift = 8 * C_a**2 * L**2 * (G**2 + sigma**2) * (K - 1) * (2 * K - 1) / (3 * D)
    floor = (16 * C_a**2 * theta**2 + 2 * eps**2 + 8 * C_a**2 * sigma**2) / D
    closed = drift * sum(eta**3 for eta in rates) / sum(rates) + 2 * 1.5 / sum(rates) + floor  # (23)
    assert mean_square_gradient_bound(rates, [[eta] * K for eta in rates], 1.5, CONSTANTS).value == pytest.approx(
        closed
    )

    T, eta, mu = 6, 0.2, 1.0  # (27), its sums not rounded up: local rates eta / T, lambda = mu eta
    gamma = (1 - 2 * mu * eta + L**2 * eta**2) / (1 - mu * eta)
    total = (1 - gamma ** (T - 1)) / (1 - gamma)
    closed = L / 2 * gamma ** (T - 1) * 1.5**2 + L / 2 * eta / mu * (drift * eta**2 / T**2 + floor) * total
    bound = loss_gap_bound([eta] * (T - 1), [[eta / T] * K] * (T - 1), 1.5, mu, CONSTANTS)
    assert bound.value == pytest.approx(closed)


def test_the_spec_s_example_of_a_gap_that_stays():
    constants = Constants(L=1.0, G=1.0, sigma=0.0, theta=1.0, C_bar=0.2, eps=0.0)
    assert constants.estimation_error([0.1]) == pytest.approx(28.44, abs=0.005)


def test_what_is_not_guaranteed_is_said_not_raised():
    half = replace(CONSTANTS, C_bar=0.5)
    reason = "not guaranteed: needs C_a > 0.5, got 0.5"
    assert mean_square_gradient_bound([0.1], [[0.1]], 1.0, half).reason == reason
    assert loss_gap_bound([0.1], [[0.1]], 1.0, 1.0, half).reason == reason
    assert median_norm_bound([1.0, 1.0], [0.25, 0.25], 0.0).reason == reason
    for constants in (half, replace(CONSTANTS, C_bar=0.7)):
        assert constants.estimation_error([0.1]) == constants.mean_square() == inf
    assert mean_square_gradient_bound([0.1], [[0.1]], 1.0, replace(CONSTANTS, C_bar=0.4999)).value > 1e6
    assert loss_gap_bound([1.0], [[0.1]], 1.0, 1.0, CONSTANTS).reason == "not guaranteed: needs lambda^t < 1, got 1.0"
    assert loss_gap_bound([1.0], [[0.1]], 1.0, 1.0, CONSTANTS, [0.999]).value > 0


@pytest.mark.parametrize("name", ["L", "G", "sigma", "theta", "C_bar", "eps"])
def test_both_theorems_grow_with(name):
    settings = [replace(CONSTANTS, **{name: getattr(CONSTANTS, name) * factor}) for factor in (0.8, 1, 1.2, 1.5)]
    for bounds in (
        [mean_square_gradient_bound(**FLOATS, drop=1.0, constants=c).value for c in settings],
        [loss_gap_bound(**FLOATS, distance=1.0, mu=1.0, constants=c).value for c in settings],
    ):
        assert bounds == sorted(set(bounds))


def test_both_theorems_grow_with_local_steps_and_the_start():
    for K in range(1, 5):
        assert CONSTANTS.estimation_error([0.1] * K) < CONSTANTS.estimation_error([0.1] * (K + 1))
    assert CONSTANTS.estimation_error([0.1]) == CONSTANTS.estimation_error([9.0])  # one step: at w^t itself
    for start in (0.5, 1.0):
        less = [
            mean_square_gradient_bound(**FLOATS, drop=start, constants=CONSTANTS).value,
            loss_gap_bound(**FLOATS, distance=start, mu=1.0, constants=CONSTANTS).value,
        ]
        assert less[0] < mean_square_gradient_bound(**FLOATS, drop=2 * start, constants=CONSTANTS).value
        assert less[1] < loss_gap_bound(**FLOATS, distance=2 * start, mu=1.0, constants=CONSTANTS).value


@pytest.mark.parametrize(
    "setting", [{"L": 0.0}, {"G": -1.0}, {"sigma": -1.0}, {"theta": torch.nan}, {"C_bar": -0.1}, {"eps": -1.0}]
)
def test_nonsense_constants_are_an_error(setting):
    with pytest.raises(SettingError, match="raga needs"):
        replace(CONSTANTS, **setting)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean_square_gradient_bound([], [], 1.0, CONSTANTS), "finite rates > 0"),
        (lambda: mean_square_gradient_bound([0.1], [[0.1]] * 2, 1.0, CONSTANTS), "local rates for each round, got 2"),
        (lambda: mean_square_gradient_bound([0.1], [[]], 1.0, CONSTANTS), "finite local_rates >= 0"),
        (lambda: mean_square_gradient_bound([0.1], [[0.1]], torch.inf, CONSTANTS), "finite drop"),
        (lambda: loss_gap_bound([0.1], [[0.1]], -1.0, 1.0, CONSTANTS), "finite distance >= 0"),
        (lambda: loss_gap_bound([0.1], [[0.1]], 1.0, 0.0, CONSTANTS), "finite mu > 0"),
        (lambda: loss_gap_bound([0.1], [[0.1]], 1.0, 3.0, CONSTANTS), "mu <= L"),
        (lambda: loss_gap_bound([0.1], [[0.1]], 1.0, 1.0, CONSTANTS, [0.1, 0.1]), "one lambda per round"),
        (lambda: loss_gap_bound([0.1], [[0.1]], 1.0, 1.0, CONSTANTS, [0.0]), "finite lambdas > 0"),
        (lambda: median_norm_bound([1.0], [0.5, 0.5], 0.0), "one share alpha per honest row"),
        (lambda: median_norm_bound([1.0, 1.0], [0.75, 0.5], 0.0), "together at most 1, got 2 with sum 1.25"),
        (lambda: median_square_bound([-1.0], [1.0], 0.0), "finite rows >= 0"),
    ],
)
def test_nonsense_is_an_error(call, message):
    with pytest.raises(SettingError, match=f"raga needs .*{message}"):
        call()
