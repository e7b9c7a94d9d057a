from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lightning_fl import SettingError, Updates
from lightning_fl.adversary.ipm import Ipm
from lightning_fl.adversary.mimic import Mimic
from lightning_fl.aggregator.boba import Boba, boba_solution
from lightning_fl.updates.products import gram_matrix
from tests.aggregator import reference

CLIENTS = torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.1, 0.9], [0.3, 0.7], [-4.5, -5.5]], dtype=torch.float64)
ATTACKS = {
    "none": lambda honest, b, draw: honest[:0],
    "gaussian": lambda honest, b, draw: 200 * torch.randn(b, honest.shape[1], generator=draw, dtype=honest.dtype),
    "ipm": lambda honest, b, draw: Ipm()(honest, b),
    "mimic": lambda honest, b, draw: Mimic()(honest, b),
}


def problem(seed: int, attack: str, dtype=torch.float64):
    """Honest clients in a noisy simplex of c classes, and b attackers: what BOBA is for."""
    draw = torch.Generator().manual_seed(seed)
    c = 2 + seed % 4
    h, b, d = 5 * c + seed % 7, 1 + seed % 4, 30 + seed
    classes = torch.randn(c, d, generator=draw, dtype=dtype)
    shares = torch.rand(h, c, generator=draw, dtype=dtype) ** 3
    honest = shares / shares.sum(1, keepdim=True) @ classes + 0.05 * torch.randn(h, d, generator=draw, dtype=dtype)
    server = classes + 0.05 * torch.randn(c, d, generator=draw, dtype=dtype)
    return torch.cat([honest, ATTACKS[attack](honest, b, draw).to(dtype)]), server, b + 1


def solve(x, classes, f, **settings):
    return boba_solution(gram_matrix(x, classes), len(classes), f, **settings)


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("seed", range(50))
def test_agrees_with_an_svd_of_the_columns(seed, attack):
    x, classes, f = problem(seed, attack)
    expected, accepted, p_hat = reference.boba(x, classes, f)
    assert np.linalg.norm(Boba(f)(x, classes).numpy() - expected) <= 1e-6 * np.linalg.norm(expected)
    solution = solve(x, classes, f)
    assert solution.accepted.tolist() == accepted.tolist()
    np.testing.assert_allclose(solution.label_distributions.numpy(), p_hat, rtol=1e-5, atol=1e-5)


def test_known_answer():
    """By hand; spec 1.7.  Rejecting the attacker instead of projecting it would give (0.45, 0.55)."""
    torch.testing.assert_close(Boba(1)(CLIENTS, torch.eye(2, dtype=torch.float64)), torch.tensor([0.56, 0.44]).double())
    solution = solve(CLIENTS, torch.eye(2).double(), 1)
    assert solution.fits == 2
    assert solution.accepted.all()
    torch.testing.assert_close(solution.label_distributions[:4], CLIENTS[:4])
    torch.testing.assert_close(solution.label_distributions[4], torch.tensor([1.0, 0.0]).double())


@pytest.mark.parametrize("attack", ATTACKS)
def test_float32_rows_give_the_float64_answer(attack):
    x, classes, f = problem(3, attack, torch.float32)
    expected, *_ = reference.boba(x, classes, f)
    result = Boba(f)(x, classes)
    assert result.dtype == torch.float32
    assert np.linalg.norm(result.numpy() - expected) <= 1e-5 * np.linalg.norm(expected)


@pytest.mark.parametrize("scale", [1e-30, 1e-16, 1e16, 1e30])
def test_accepts_the_same_clients_at_any_scale(scale):
    x, classes, f = problem(3, "ipm")
    here, there = solve(x, classes, f), solve(scale * x, scale * classes, f)
    assert not here.accepted.all()
    assert torch.equal(there.accepted, here.accepted)
    torch.testing.assert_close(there.label_distributions, here.label_distributions, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("seed", "options"),
    [
        *[(seed, options) for seed in (0, 4) for options in ({"p_min": 0.0}, {"stage_1": "none"}, {"stage_2": False})],
        (2, {"p_min": 0.0}),  # 10 clients are as near; n - f = 21 are taken
        (2, {"max_iter": 1}),
        (2, {"stage_1": "none"}),
        (2, {"stage_2": False}),
        (0, {"stage_1": "exhaustive"}),
        (4, {"stage_1": "exhaustive"}),
    ],
)
def test_the_class_agrees_with_the_loop_in_any_setting_and_reports_its_weights(seed, options):
    x, classes, f = problem(seed, "ipm")
    found = Boba(f, **options).aggregate(Updates(x), SimpleNamespace(class_updates=classes))
    expected, accepted, p_hat = reference.boba(x, classes, f, **options)
    np.testing.assert_allclose(found.update, expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.label_distributions, p_hat, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.trust, accepted / accepted.sum(), rtol=1e-12)
    solution = solve(x, classes, f, **options)
    torch.testing.assert_close(found.weights, solution.coefficients[: len(x)])
    diagnostics = {"fits": solution.fits, "accepted": accepted.sum(), "explained": pytest.approx(solution.explained)}
    if solution.loss_ratio is not None:
        diagnostics["loss_ratio"] = pytest.approx(solution.loss_ratio)
    assert found.diagnostics == diagnostics


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("seed", range(10))
def test_stage_1_never_raises_the_trimmed_loss(seed, attack):
    """l_t falls from pass to pass (sec. 4), and every pass is the loop's."""
    x, classes, f = problem(seed, attack)
    keep, c = len(x) - f, len(classes)
    mean, directions = reference.trsvd(classes.numpy(), c - 1)
    losses = [np.sort(reference.boba_residuals(x.numpy(), mean, directions))[:keep].sum()]
    for passes in range(1, solve(x, classes, f).fits):
        nearest = np.argsort(reference.boba_residuals(x.numpy(), mean, directions), kind="stable")[:keep]
        mean, directions = reference.trsvd(x.numpy()[np.sort(nearest)], c - 1)
        losses.append(np.sort(reference.boba_residuals(x.numpy(), mean, directions))[:keep].sum())
        expected = reference.boba(x, classes, f, max_iter=passes)[0]
        np.testing.assert_allclose(Boba(f, max_iter=passes)(x, classes), expected, rtol=1e-6, atol=1e-9)
    assert (np.diff(losses) <= 1e-9 * losses[0]).all()


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("seed", range(0, 8, 4))
def test_says_how_far_the_alternating_fit_is_from_the_best_subset(seed, attack):
    x, classes, f = problem(seed, attack)
    keep, c = len(x) - f, len(classes)

    def fit(subset):
        mean, directions = reference.trsvd(x.numpy()[sorted(subset)], c - 1)
        residuals = reference.boba_residuals(x.numpy(), mean, directions)
        return np.argsort(residuals, kind="stable")[:keep], np.sort(residuals)[:keep].sum()

    mean, directions = reference.trsvd(classes.numpy(), c - 1)
    nearest = np.argsort(reference.boba_residuals(x.numpy(), mean, directions), kind="stable")[:keep]
    for _ in range(20):
        nearest, loss = fit(nearest)
    best = min(fit(subset)[1] for subset in combinations(range(len(x)), keep))
    ratio = solve(x, classes, f, stage_1="exhaustive").loss_ratio
    assert ratio == pytest.approx(loss / best, rel=1e-6)
    assert ratio >= 1 - 1e-9
    assert solve(x, classes, f).loss_ratio is None


@pytest.mark.parametrize("seed", range(4))
def test_says_how_much_of_the_variance_lies_in_the_subspace(seed):
    x, classes, _ = problem(seed, "none")
    squares = np.linalg.svd(x.numpy() - x.numpy().mean(0), compute_uv=False) ** 2
    expected = squares[: len(classes) - 1].sum() / squares.sum()
    assert solve(x, classes, 0).explained == pytest.approx(expected, rel=1e-9)


def test_coefficients_sum_to_one():
    solution = solve(*problem(5, "mimic"))
    assert abs(solution.coefficients.sum().item() - 1) < 1e-9


@pytest.mark.parametrize("p_min", [-0.5, -torch.inf])
def test_a_non_finite_client_is_not_accepted(p_min):
    x = CLIENTS.clone()
    x[4, 0] = torch.nan
    solution = solve(x, torch.eye(2).double(), 1, p_min=p_min)
    assert solution.accepted.tolist() == [True, True, True, True, False]
    assert solution.coefficients[4] == 0
    torch.testing.assert_close(Boba(1, p_min)(x, torch.eye(2).double()), CLIENTS[:4].mean(0))


def test_more_non_finite_clients_than_f_leave_fewer():
    x, classes = CLIENTS.clone(), torch.eye(2).double()
    x[3:, 0] = torch.nan
    assert solve(x, classes, 1).accepted.tolist() == [True, True, True, False, False]
    torch.testing.assert_close(Boba(1)(x, classes), torch.tensor([0.5, 0.5]).double())


@pytest.mark.parametrize("rows", [torch.zeros(6, 4), torch.ones(6, 4)])
def test_degenerate_rows_give_their_common_value(rows):
    """All rows equal: no direction to fit, and every client is at the mean."""
    torch.testing.assert_close(Boba(f=1)(rows, rows[:2]), rows[0])
    assert solve(rows, rows[:2], 1).explained == 1
    assert solve(rows, rows[:2], 1, stage_1="exhaustive").loss_ratio == 1


@pytest.mark.parametrize(
    ("rule", "x", "classes", "message"),
    [
        (Boba(1), CLIENTS.float(), [[1.0, 0.0], [torch.nan, 1.0]], r"classes \[1\]"),
        (Boba(10, stage_1="exhaustive"), torch.ones(40, 3), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], r"C\(40, 10\)"),
        (Boba(1), torch.eye(3), [[1.0] * 3], "boba needs class updates of 2 classes or more, got 1; a plain matrix"),
        (Boba(1), CLIENTS.float(), [[1.0] * 3] * 3, "length 2, got 3"),
    ],
)
def test_refuses_what_it_cannot_fit(rule, x, classes, message):
    with pytest.raises(SettingError, match=message):
        rule(x, torch.tensor(classes))
