from fractions import Fraction
from itertools import combinations

import pytest
import torch
from torch import Tensor

from lightning_fl.aggregator.boba import Boba, boba_solution
from lightning_fl.errors import SettingError
from lightning_fl.theory.base import gradient_noise, heterogeneity
from lightning_fl.theory.boba import error_bound, least_singular_value
from lightning_fl.updates.products import gram_matrix
from tests.theory.problems import Quadratics, forge, normal

SETTING = {"n": 10, "f": 3, "n_byzantine": 2, "c": 3, "p_min": -0.5, "least_p_hat": -0.25}
SETTING |= {"eps": 0.5, "eps_s": 0.25, "delta": 2.0, "delta_s": 3.0, "sigma": 0.5, "sigma_s": 1.0}


def blur(rows: Tensor, length: float, draw: torch.Generator) -> Tensor:
    """Add noise of this length to each row."""
    noise = normal(draw, *rows.shape)
    return rows + length * noise / noise.norm(dim=1, keepdim=True)


def constants(expected: Tensor, classes: Tensor, b: int, f: int) -> dict:
    """The theorem's constants that follow from expected gradients of honest clients and of classes."""
    n, c, mean = len(expected) + b, len(classes), expected.mean(0)
    return {
        "n": n,
        "f": f,
        "n_byzantine": b,
        "c": c,
        "delta": heterogeneity(expected, mean),
        "delta_s": heterogeneity(classes, mean),
        "sigma": least_singular_value(expected, n - 2 * f, c),
        "sigma_s": least_singular_value(classes, c, c),
    }


def least_p_hat(clients: Tensor, classes: Tensor, h: int, f: int, p_min: float) -> float:
    return boba_solution(gram_matrix(clients, classes), len(classes), f, p_min).label_distributions[:h].min().item()


def attack(name: str, honest: Tensor, classes: Tensor, b: int, draw: torch.Generator) -> Tensor:
    if name == "corner":  # as far out as a client may go and be accepted
        p = torch.full((len(classes),), -0.49, dtype=torch.float64)
        p[0] = 1 + 0.49 * (len(classes) - 1)
        return (p @ classes).expand(b, -1)
    if name == "copy":
        return honest[:1].expand(b, -1)
    return forge(name, honest, honest.mean(0), b, draw)


@pytest.mark.parametrize("name", ["corner", "copy", "against", "sum", "noise", "nan", "huge"])
@pytest.mark.parametrize("seed", range(6))
def test_the_bound_holds_in_every_round_on_quadratics(name, seed):
    # Noise of one length makes every expectation of the proof an inequality that holds surely.
    draw = torch.Generator().manual_seed(seed)
    c, d, h, b = 2 + seed % 2, 6, 9 + seed % 3, 1 + seed % 3
    f, eps, eps_s = b + (seed > 3), [0.0, 1e-3, 0.05][seed % 3], [0.02, 0.0][seed % 2]
    problem = Quadratics.draw(c, d, draw, mu=0.5, L=1.0, spread=1.0)  # a loss for each class
    p = torch.rand(h, c, generator=draw, dtype=torch.float64) ** 3
    p /= p.sum(1, keepdim=True)
    w = normal(draw, d)
    for _ in range(6):
        classes = problem.gradients(w)
        expected = p @ classes
        server, honest = blur(classes, eps_s, draw), blur(expected, eps, draw)
        clients = torch.cat([honest, attack(name, honest, server, b, draw)])
        least = least_p_hat(clients, server, h, f, -0.5)
        bound = error_bound(**constants(expected, classes, b, f), p_min=-0.5, least_p_hat=least, eps=eps, eps_s=eps_s)
        update = Boba(f, -0.5)(clients, server)
        assert bound.reason is None
        assert (update - expected.mean(0)).square().sum() <= bound.value + 1e-12
        w = w - 0.2 * update


def test_without_noise_and_byzantine_clients_there_is_no_error():
    draw = torch.Generator().manual_seed(0)
    classes = normal(draw, 3, 5)
    expected = torch.rand(8, 3, generator=draw).double().softmax(1) @ classes
    bound = error_bound(**constants(expected, classes, 0, 2), p_min=-0.5, least_p_hat=0.0, eps=0.0, eps_s=0.0)
    assert bound.value == 0
    assert (Boba(2)(expected, classes) - expected.mean(0)).norm() < 1e-12


def test_the_bound_fails_where_honest_clients_are_rejected_and_so_is_not_guaranteed():
    # Clients of one class each lie at the ends of the simplex; noise puts some of them outside.
    draw = torch.Generator().manual_seed(0)
    classes = 5 * torch.eye(2, 4, dtype=torch.float64)
    expected, eps = classes.repeat_interleave(4, 0), 1e-6
    settings = constants(expected, classes, 0, 1) | {"p_min": 0.0, "eps": eps, "eps_s": eps}
    refused = []
    for _ in range(10):
        honest, server = blur(expected, eps, draw), blur(classes, eps, draw)
        bound = error_bound(**settings, least_p_hat=least_p_hat(honest, server, 8, 1, 0.0))
        error = (Boba(1, 0.0)(honest, server) - expected.mean(0)).square().sum().item()
        if bound.value is None:
            assert "p_min <= p_hat of every honest client" in bound.reason
            refused.append(error)
        else:
            assert error <= bound.value
    assert max(refused) > 1e6 * error_bound(**settings, least_p_hat=0.0).value


def test_theorem_5_5_in_fractions():
    # n = 10, f = 3, |B| = 2, |H| = 8, c = 3, p_min = -1/2: beta = 1/5, 1 / (n - 2f) + delta^2 / sigma^2 = 65/4.
    fit, outside = Fraction(1, 4) + 16, (1 + Fraction(3, 2)) ** 2
    c_1 = 4 + 8 * fit * (2 * 7 + 8)
    c_2 = 16 * fit * 7 + 16 * 3 * outside / 25
    expected = c_1 / 4 + c_2 / 16 + 16 * outside / 25 * 9
    assert (c_1, c_2) == (2864, 1832)
    assert error_bound(**SETTING).value == pytest.approx(float(expected))
    # Misreadings: beta = |B| / |H| gives 887.17; f / n, 912.44; 1 + c |p_min| not squared, 844.45.
    assert float(expected) == 716 + 114.5 + 36


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"n_byzantine": 4}, "|B| <= f, got |B|=4 and f=3"),
        ({"f": 4}, "n - 2f >= c, got n=10, f=4 and c=3"),
        ({"c": 5}, "n - 2f >= c, got n=10, f=3 and c=5"),
        ({"sigma": 0.0}, "sigma > 0 and sigma_s > 0, got 0 and 1"),
        ({"sigma_s": 0.0}, "sigma > 0 and sigma_s > 0, got 0.5 and 0"),
        ({"p_min": -0.2}, "-inf < p_min <= p_hat of every honest client, got -0.2 and -0.25"),
        ({"p_min": -torch.inf}, "-inf < p_min <= p_hat of every honest client, got -inf and -0.25"),
        ({"least_p_hat": torch.nan}, "-inf < p_min <= p_hat of every honest client, got -0.5 and nan"),
    ],
)
def test_what_is_not_guaranteed_is_said_not_raised(setting, reason):
    assert error_bound(**SETTING | setting).reason == f"not guaranteed: needs {reason}"


def test_the_conditions_hold_on_their_boundary():
    assert error_bound(**SETTING | {"n_byzantine": 3, "c": 4, "least_p_hat": -0.5}).reason is None


@pytest.mark.parametrize("name", ["eps", "eps_s", "delta", "delta_s", "p_min"])
def test_the_bound_grows_with(name):
    values = [error_bound(**SETTING | {name: SETTING[name] * factor}).value for factor in (1, 2, 3)]
    assert values == sorted(set(values))


def test_the_bound_falls_with_the_singular_value_and_grows_with_attackers_without_noise():
    values = [error_bound(**SETTING | {"sigma": sigma}).value for sigma in (0.1, 1.0, 10.0)]
    assert values == sorted(set(values), reverse=True)
    exact = SETTING | {"eps": 0.0, "eps_s": 0.0}
    values = [error_bound(**exact | {"n_byzantine": b}).value for b in range(4)]
    assert values[0] == 0
    assert values == sorted(set(values))


@pytest.mark.parametrize(
    "setting",
    [{"n": 0}, {"f": -1}, {"c": 1}, {"n_byzantine": 10}, {"n_byzantine": -1}, {"p_min": 0.1}, {"eps": -1.0}],
)
def test_nonsense_is_an_error(setting):
    with pytest.raises(SettingError, match="boba needs"):
        error_bound(**SETTING | setting)


@pytest.mark.parametrize(("h", "m", "c", "d"), [(6, 4, 3, 5), (7, 6, 2, 3), (5, 5, 4, 9), (8, 3, 3, 2)])
def test_the_singular_value_is_the_least_over_subsets(h, m, c, d):
    rows = normal(torch.Generator().manual_seed(h), h, d)
    values = []
    for subset in combinations(range(h), m):
        taken = rows[list(subset)] - rows[list(subset)].mean(0)
        values.append(torch.linalg.eigvalsh(taken.T @ taken).clamp(min=0).sqrt().sort(descending=True).values[c - 2])
    assert least_singular_value(rows, m, c) == pytest.approx(min(values).item(), rel=1e-6)


def test_the_singular_value_may_be_that_of_the_first_of_many_subsets():
    # C(15, 7) = 6,435, more than are looked at together; the first seven rows lie close to each other.
    rows = normal(torch.Generator().manual_seed(0), 15, 3)
    rows[:7] *= 0.01
    expected = torch.linalg.matrix_norm(rows[:7] - rows[:7].mean(0), 2).item()
    assert least_singular_value(rows, 7, 2) == pytest.approx(expected)


def test_the_singular_value_vanishes_where_rows_do_not_span():
    rows = normal(torch.Generator().manual_seed(0), 6, 4)
    assert least_singular_value(rows, 2, 3) == 0  # two rows span a line
    assert least_singular_value(rows[:, :1], 6, 3) == 0  # d < c - 1
    assert least_singular_value(rows[[0, 0, 0, 1, 2, 3]], 3, 2) == 0  # three copies
    assert least_singular_value(rows[[0, 0, 0, 1, 2, 3]], 4, 2) > 0


def test_the_singular_value_s_errors():
    rows = torch.ones(30, 2)
    with pytest.raises(SettingError, match=r"C\(30, 15\) = 1.55e\+08 of them, at most 100,000"):
        least_singular_value(rows, 15, 2)
    with pytest.raises(SettingError, match="1 <= m <= h and c >= 2, got m=31, h=30"):
        least_singular_value(rows, 31, 2)
    with pytest.raises(SettingError, match="finite gradients"):
        least_singular_value(rows / 0, 30, 2)


def test_estimates_of_the_variations():
    # Four clients of one class each, E gamma = (+-2, 0); noise of length 3 along the second axis.
    expected = torch.tensor([[2.0, 0.0], [2.0, 0.0], [-2.0, 0.0], [-2.0, 0.0]])
    draws = torch.stack([expected + torch.tensor([0.0, 3.0]), expected - torch.tensor([0.0, 3.0])])
    assert heterogeneity(expected, expected.mean(0)) == 2
    assert gradient_noise(draws, expected).tolist() == [3, 3, 3, 3]
    assert least_singular_value(expected, 4, 2) == pytest.approx(4)
    assert least_singular_value(expected, 2, 2) == 0
