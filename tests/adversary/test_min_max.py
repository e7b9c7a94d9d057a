from math import sqrt

import numpy as np
import pytest
import torch

from lightning_fl.adversary.min_max import MinMax, MinSum
from tests.adversary import reference

BOTH = pytest.mark.parametrize(("attack", "limit"), [(MinMax, reference.max_limit), (MinSum, reference.sum_limit)])
PROBLEMS = pytest.mark.parametrize("name", reference.PROBLEMS)
SEEDS = pytest.mark.parametrize("seed", range(5))


DIRECTIONS = pytest.mark.parametrize("direction", [None, "inverse_std", "inverse_unit", "inverse_sign"])


@BOTH
@PROBLEMS
@SEEDS
@DIRECTIONS
def test_agrees_with_the_papers_loop(attack, limit, name, seed, direction):
    x = reference.problem(name, seed)
    expected, gamma = reference.halving(x, limit, direction=direction or "std")
    assert 0.1 < gamma < 19  # the bound decides, not where the search may go
    # One step of the search, 1e-5, apart where a comparison is decided by rounding.
    atol = 2e-5 * np.abs(reference.perturbations(x)[direction or "std"]).max() + 1e-15 * np.abs(x).max()
    forged = attack(direction=direction)(torch.from_numpy(x), 2)
    np.testing.assert_allclose(forged, [expected] * 2, rtol=0, atol=atol)


@pytest.mark.parametrize(
    ("attack", "direction", "row"),
    [
        (MinMax, None, [1.04383852, 1.47750137]),
        (MinMax, "inverse_std", [-0.73807847, -1.18573933]),
        (MinMax, "inverse_unit", [-1.14154018, -0.99884766]),
        (MinMax, "inverse_sign", [-1.03717911, -1.05384578]),
        (MinSum, None, [1.08108466, 1.53316918]),
        (MinSum, "inverse_std", [-0.81441799, -1.29983585]),
        (MinSum, "inverse_unit", [-1.14929935, -1.00563693]),
        (MinSum, "inverse_sign", [-1.07180399, -1.08847066]),
    ],
)
def test_known_rows_in_each_direction(attack, direction, row):
    """The sum of squares allows the same length 1.7043 from the mean in every direction, the largest distance does not;
    with the smallest sum for the largest, as in public code, min_sum's would be 0.25."""
    forged = attack(direction=direction)(torch.from_numpy(reference.HC), 2)
    np.testing.assert_allclose(forged, [row] * 2, atol=4e-5)


@BOTH
@pytest.mark.parametrize("direction", ["inverse_unit", "inverse_sign"])
def test_a_mean_of_0_has_no_direction(attack, limit, direction):
    honest = torch.tensor([[1.0, 2.0], [-1.0, -2.0]])
    assert attack(direction=direction)(honest, 1).tolist() == [[0.0, 0.0]]


@BOTH
@DIRECTIONS
def test_gamma_does_not_depend_on_the_unit_of_updates(attack, limit, direction):
    honest = torch.from_numpy(reference.problem("random"))
    forged = attack(direction=direction)(honest, 1)
    for unit in (1e-6, 1e6):
        torch.testing.assert_close(attack(direction=direction)(unit * honest, 1), unit * forged)


@BOTH
@PROBLEMS
@SEEDS
def test_bound_holds_and_1_percent_more_breaks_it(attack, limit, name, seed):
    x = reference.problem(name, seed)
    forged = attack()(torch.from_numpy(x), 1)[0].numpy()
    bound, measure = limit(x)
    assert measure(forged) <= bound * (1 + 1e-9)
    assert measure(x.mean(0) + 1.01 * (forged - x.mean(0))) > bound


@BOTH
@PROBLEMS
def test_float32_rounds_what_float64_sends(attack, limit, name):
    honest = torch.from_numpy(reference.problem(name)).float()
    forged = attack()(honest, 2)
    assert forged.dtype == torch.float32
    # The forged row itself cannot be stored to better than a unit in the last place of 1e3.
    atol = 1e-6 * honest.abs().max().item()
    torch.testing.assert_close(forged.double(), attack()(honest.double(), 2), rtol=1e-5, atol=atol)


def test_known_answers():
    """On a line: mean 2, std sqrt 3.  MinMax: 3 from 0 at most.  MinSum: 2 from the mean at most, as 0 is.
    With the authors' minus on updates both would be 0 or below; with plain distances for MinSum's squares, 4.5."""
    honest = torch.tensor([[0.0], [3.0], [3.0]], dtype=torch.float64)
    assert MinMax()(honest, 1).item() == pytest.approx(3, abs=4e-5)
    assert MinSum()(honest, 1).item() == pytest.approx(4, abs=4e-5)


@SEEDS
def test_min_sums_gamma_in_closed_form(seed):
    """sum_i ||x_b - x_i||^2 is sum_i D_i + h gamma^2 sum_i D_i / (h - 1), with D_i = ||x_i - mean||^2."""
    x = reference.problem("random", seed)
    squares = ((x - x.mean(0)) ** 2).sum(1)
    gamma = sqrt((len(x) - 1) * squares.max() / squares.sum())
    np.testing.assert_allclose(MinSum()(torch.from_numpy(x), 1)[0], x.mean(0) + gamma * reference.std(x), atol=5e-5)


def test_gamma_stays_below_twice_its_start():
    """One update of 1 among 900 zeros: mean 1/901, std 1/sqrt 901, and the bound allows 900/sqrt 901 = 29.98."""
    honest = torch.zeros(901, 1, dtype=torch.float64)
    honest[0] = 1.0
    for gamma_init, gamma in [(10.0, 20.0), (20.0, 900 / sqrt(901))]:
        forged = MinSum(gamma_init)(honest, 1).item()
        assert (forged - 1 / 901) * sqrt(901) == pytest.approx(gamma, abs=2e-5)


@BOTH
def test_equal_updates_are_copied(attack, limit):
    assert attack()(torch.full((4, 3), 0.1), 2).tolist() == torch.full((2, 3), 0.1).tolist()


@BOTH
def test_a_coarse_search_ends_inside_the_bound(attack, limit):
    x = reference.problem("random")
    bound, measure = limit(x)
    for tau in (1e-300, 0.3, 100.0):
        assert measure(attack(tau=tau)(torch.from_numpy(x), 1)[0].numpy()) <= bound * (1 + 1e-12)


@BOTH
def test_a_start_whose_square_overflows_ends_inside_the_bound(attack, limit):
    assert attack(gamma_init=1e200)(torch.tensor([[0.0], [3.0], [3.0]]), 1).isfinite().all()
