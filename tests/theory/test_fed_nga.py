# ruff: noqa: N803, N806 (the paper's letters)
from fractions import Fraction
from math import sqrt

import pytest
import torch

from lightning_fl.aggregator.normalized import Normalized
from lightning_fl.errors import SettingError
from lightning_fl.theory.base import gradient_bound
from lightning_fl.theory.fed_nga import (
    contraction,
    descent,
    directional_heterogeneity,
    distance_bound,
    largest_share,
    largest_share_strongly_convex,
    mean_distance_bound,
    mean_gradient_bound,
)
from tests.theory.problems import ATTACKS, Quadratics, Waves, forge, normal

CONVEX = {"distance": 2.0, "L": 1.25, "mu": 1.0, "G": 5.0, "theta": 0.0625, "C_bar": 0.125}


def run(problem, b, w, rates, attack, draw):
    """Run Fed-NGA with the last b clients Byzantine; return points w^0 .. w^T, honest gradients, gradients of F."""
    points, honest, objective = [w], [], []
    for eta in rates:
        rows = problem.gradients(w)
        honest.append(rows[:-b])
        objective.append(problem.gradient(w))
        forged = forge(attack, honest[-1], objective[-1], b, draw)
        w = w - eta * Normalized()(torch.cat([honest[-1], forged]), weights=problem.alphas)
        points.append(w)
    return points, torch.stack(honest), torch.stack(objective)


def check_smooth(problem, b, points, honest, objective, rates):
    """Check inequalities (31) and (18); return theta and C_bar."""
    L, C_bar = problem.curvatures[1], problem.alphas[-b:].sum().item()
    theta = directional_heterogeneity(honest, objective)
    k = descent(theta, C_bar)
    assert k > 0
    losses, lengths = [problem.loss(w) for w in points], objective.norm(dim=1).tolist()
    for t, eta in enumerate(rates):
        assert losses[t + 1] - losses[t] <= -eta * k * lengths[t] + L / 2 * eta**2 + 1e-12
    bound = mean_gradient_bound(rates, losses[0] - losses[-1], L, theta, C_bar)
    assert bound.reason is None
    assert sum(eta * x for eta, x in zip(rates, lengths, strict=True)) / sum(rates) <= bound.value + 1e-12
    return theta, C_bar


def check_convex(problem, b, record, rates):
    """Check inequalities (34), (20) and (21); rates has one more than the run."""
    points, honest, objective = record
    theta, C_bar = check_smooth(problem, b, *record, rates[:-1])
    mu, L = problem.curvatures
    G = max(gradient_bound(honest), gradient_bound(objective[:, None]))
    gamma = contraction(L, mu, G, theta, C_bar)
    squares = [(w - problem.minimiser).square().sum().item() for w in points]
    assert gamma > 0
    for t, eta in enumerate(rates[:-1]):
        assert squares[t + 1] <= (1 - gamma * eta) * squares[t] + eta**2 + 1e-12
    last = distance_bound(rates[:-1], squares[0] ** 0.5, L, mu, G, theta, C_bar)
    mean = mean_distance_bound(rates, squares[0] ** 0.5, L, mu, G, theta, C_bar)
    assert last.reason is None
    assert mean.reason is None
    assert squares[-1] <= last.value + 1e-12
    assert sum(eta * x for eta, x in zip(rates, squares, strict=True)) / sum(rates) <= mean.value + 1e-12


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("seed", range(4))
def test_every_bound_holds_on_quadratics(attack, seed):
    draw = torch.Generator().manual_seed(seed)
    b = 1 + seed % 3
    problem = Quadratics.draw(10, 4, draw, mu=1.0, L=1.1, spread=0.02)
    rates = [0.06 / (t + 1) ** 0.6 for t in range(26)] if seed % 2 else [0.01] * 26
    check_convex(problem, b, run(problem, b, problem.minimiser + normal(draw, 4), rates[:-1], attack, draw), rates)


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("rates", [[0.05] * 100, [0.5 / (t + 1) ** 0.6 for t in range(100)]])
def test_every_bound_holds_up_to_the_minimiser_of_like_clients(attack, rates):
    draw = torch.Generator().manual_seed(1)
    problem = Quadratics.draw(10, 3, draw, mu=1.0, L=1.2, spread=0.0, bend=0.0)
    record = run(problem, 3, problem.minimiser + normal(draw, 3), rates[:-1], attack, draw)
    check_convex(problem, 3, record, rates)


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("seed", range(4))
def test_theorem_3_5_holds_on_losses_that_are_not_convex(attack, seed):
    draw = torch.Generator().manual_seed(seed)
    b = 1 + seed % 2
    problem = Waves.draw(12, 5, draw, spread=0.1)
    rates = [0.3 / (t + 1) ** 0.6 for t in range(20)]
    check_smooth(problem, b, *run(problem, b, 2 * normal(draw, 5).sign(), rates, attack, draw), rates)


def test_a_single_client_reaches_both_bounds():
    # F = w^2 / 2 from w = 2 by a step of 1/2: |grad F| = 2 and, with G = 2, ||w^1||^2 = 9/4.
    assert mean_gradient_bound([0.5], 2.0 - 1.125, L=1.0, theta=0.0, C_bar=0.0).value == 2
    assert distance_bound([0.5], 2.0, L=1.0, mu=1.0, G=2.0, theta=0.0, C_bar=0.0).value == 2.25
    assert mean_distance_bound([0.5], 2.0, L=1.0, mu=1.0, G=2.0, theta=0.0, C_bar=0.0).value == 8  # (4) / (1 / 2)


def test_the_spec_s_numbers():
    assert descent(theta=1.0, C_bar=0.2) == pytest.approx(0.2)
    assert contraction(L=1.2, mu=1.0, G=5.0, theta=0.05, C_bar=0.2) == pytest.approx(0.2048)


def test_theorem_3_5_by_hand():
    # theta = 1/2, C_a = 7/8: k = 15/8 * 7/8 - 1 = 41/64.  The rates' sum is 13/12, that of their squares 61/144.
    value = mean_gradient_bound([1 / 2, 1 / 3, 1 / 4], drop=3.0, L=2.0, theta=0.5, C_bar=0.125).value
    assert value == pytest.approx((3 + 61 / 144) / (41 / 64 * 13 / 12))  # 4.933
    # The drop not over k gives 3.380; L for L / 2, 5.543; theta for theta^2 / 2, 10.11; sum of rates / T, 14.80.
    assert value == pytest.approx(7888 / 1599)


def test_theorem_3_7_in_fractions():
    rates = [Fraction(1, t) for t in (1, 2, 4, 8)]
    L, mu, G, theta, C_a, start = Fraction(5, 4), 1, 5, Fraction(1, 16), Fraction(7, 8), 4
    gamma = 2 * ((mu + L - L * theta) * C_a - L) / G
    T = len(rates)

    def product(first):
        result = Fraction(1)
        for eta in rates[first:]:
            result *= 1 - gamma * eta
        return result

    # (20) as printed, not as a recursion.
    last = product(0) * start + sum(rates[t] ** 2 * product(t + 1) for t in range(T - 1)) + rates[-1] ** 2
    assert distance_bound([1.0, 0.5, 0.25, 0.125], **CONVEX).value == pytest.approx(float(last))
    mean = (start + sum(eta**2 for eta in rates[:-1])) / (gamma * sum(rates))
    assert mean_distance_bound([1.0, 0.5, 0.25, 0.125], **CONVEX).value == pytest.approx(float(mean))


def test_what_is_not_guaranteed_is_said_not_raised():
    assert mean_gradient_bound([0.1], 1.0, 1.0, theta=0.0, C_bar=0.5).reason == (
        "not guaranteed: needs k = (2 - theta^2 / 2) C_a - 1 > 0, got 0"
    )
    assert mean_gradient_bound([0.1], 1.0, 1.0, theta=0.0, C_bar=0.499).value > 0
    assert mean_gradient_bound([0.1], 1.0, 1.0, theta=sqrt(2), C_bar=0.0).value is None
    for bound in (distance_bound, mean_distance_bound):
        assert "gamma" in bound([0.1], **CONVEX | {"theta": 1.0}).reason
        assert bound([0.1], 1.0, 1.0, mu=0.0, G=1.0, theta=0.0, C_bar=0.0).value is None  # only convex


def test_theorem_3_7_needs_small_rates_all_of_them_or_the_last():
    settings = {"distance": 1.0, "L": 1.0, "mu": 1.0, "G": 1.0, "theta": 0.0, "C_bar": 0.25}  # gamma = 1
    assert distance_bound([1.0, 0.5], **settings).reason == "not guaranteed: needs eta < 1 / gamma, got eta gamma = 1"
    assert mean_distance_bound([1.0, 0.5], **settings).value == pytest.approx(2 / 1.5)
    assert mean_distance_bound([0.5, 1.0], **settings).value is None


@pytest.mark.parametrize("theta", [0.0, 0.5, 1.0, 1.4])
def test_largest_share_is_where_k_vanishes(theta):
    share = largest_share(theta)
    assert descent(theta, share) == pytest.approx(0)
    assert descent(theta, share - 1e-6) > 0 > descent(theta, share + 1e-6)


def test_largest_share_follows_the_table_of_largest_theta():
    # The paper's trade-off: C_bar 0.1 .. 0.4 tolerate theta below these.
    for C_bar, theta in [(0.1, 1.3333), (0.2, 1.2247), (0.3, 1.0690), (0.4, 0.8165)]:
        assert largest_share(theta) == pytest.approx(C_bar, abs=1e-4)


@pytest.mark.parametrize(("L", "mu", "theta"), [(3.0, 1.0, 0.0), (1.2, 1.0, 0.05), (2.0, 2.0, 0.9)])
def test_largest_share_of_theorem_3_7_is_where_gamma_vanishes(L, mu, theta):
    share = largest_share_strongly_convex(L, mu, theta)
    assert contraction(L, mu, 1.0, theta, share) == pytest.approx(0, abs=1e-12)
    assert contraction(L, mu, 1.0, theta, share - 1e-6) > 0
    assert largest_share_strongly_convex(L, mu, mu / L) == 0


def test_remark_3_8_is_wrong_as_printed():
    L, mu = 3.0, 1.0
    assert contraction(L, mu, 1.0, theta=0.0, C_bar=0.99 * L / (L + mu)) < 0  # "tolerable intensity L / (L + mu)"
    assert contraction(L, mu, 1.0, theta=0.99 * (L + mu) / L, C_bar=0.0) < 0  # "theta < (L + mu) / L"


@pytest.mark.parametrize("name", ["theta", "C_bar", "L", "drop"])
def test_theorem_3_5_grows_with(name):
    settings = {"rates": [0.1, 0.2], "drop": 1.0, "L": 1.0, "theta": 0.5, "C_bar": 0.1}
    values = [mean_gradient_bound(**settings | {name: settings[name] * factor}).value for factor in (0.5, 1, 1.5, 2)]
    assert values == sorted(set(values))


@pytest.mark.parametrize("name", ["theta", "C_bar", "distance", "G"])
@pytest.mark.parametrize("bound", [distance_bound, mean_distance_bound])
def test_theorem_3_7_grows_with(name, bound):
    values = [bound([0.1, 0.2], **CONVEX | {name: CONVEX[name] * factor}).value for factor in (0.5, 1, 1.5, 2)]
    assert values == sorted(set(values))


def test_theta_is_of_directions():
    gradients = torch.tensor([[[1.0, 0.0], [0.0, 9.0]], [[1.0, 1.0], [-3.0, -3.0]]])  # 2 rounds, 2 clients
    objective = torch.tensor([[2.0, 0.0], [5.0, 5.0]])
    assert directional_heterogeneity(gradients[:1], objective[:1]) == pytest.approx(sqrt(2))
    assert directional_heterogeneity(gradients, objective) == pytest.approx(2)
    assert directional_heterogeneity(1e-20 * gradients, 1e20 * objective) == pytest.approx(2)


def test_theta_of_gradients_without_direction():
    one, zero = torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2)
    assert directional_heterogeneity(zero, one[0]) == sqrt(2)
    assert directional_heterogeneity(one, zero[0]) == 0
    assert directional_heterogeneity(torch.cat([one, zero]), one[0]) == sqrt(2)
    with pytest.raises(SettingError, match="finite gradients"):
        directional_heterogeneity(one / 0, one[0])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"rates": []}, r"fed_nga needs finite rates > 0, got \[\]"),
        ({"rates": [0.1, -0.1]}, r"fed_nga needs finite rates > 0"),
        ({"L": 0.0}, r"fed_nga needs finite L > 0, got 0"),
        ({"theta": -0.1}, r"fed_nga needs finite theta >= 0"),
        ({"C_bar": 1.5}, r"fed_nga needs a share C_bar in \[0, 1\], got 1.5"),
        ({"drop": torch.inf}, r"fed_nga needs finite drop"),
    ],
)
def test_nonsense_about_theorem_3_5_is_an_error(setting, message):
    with pytest.raises(SettingError, match=message):
        mean_gradient_bound(**{"rates": [0.1], "drop": 1.0, "L": 1.0, "theta": 0.0, "C_bar": 0.0} | setting)


@pytest.mark.parametrize("bound", [distance_bound, mean_distance_bound])
@pytest.mark.parametrize("setting", [{"rates": []}, {"mu": 2.0}, {"mu": -1.0}, {"G": 0.0}, {"distance": -1.0}])
def test_nonsense_about_theorem_3_7_is_an_error(bound, setting):
    with pytest.raises(SettingError, match="fed_nga needs finite"):
        bound(**{"rates": [0.1]} | CONVEX | setting)
