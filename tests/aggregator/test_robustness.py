"""Robustness coefficients, checked by searching for problems that exceed them.

Youssef Allouah, Sadegh Farhadkhani, Rachid Guerraoui, Nirupam Gupta, Rafael Pinot, John Stephan. Fixing by Mixing: A
Recipe for Optimal Byzantine ML under Heterogeneity. AISTATS 2023. arXiv:2302.01772.

A rule F is (f, kappa)-robust if ||F(x) - mean_S||^2 <= kappa / |S| sum_{i in S} ||x_i - mean_S||^2 for all rows x and
all S of n - f of them.
"""

from itertools import combinations

import numpy as np
import pytest
import torch

from lightning_fl import Updates
from lightning_fl.aggregator.aksel import Aksel
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.caf import Caf
from lightning_fl.aggregator.geometric_median import GeometricMedian
from lightning_fl.aggregator.krum import Krum, MultiKrum
from lightning_fl.aggregator.mda import Mda
from lightning_fl.aggregator.median import Median
from lightning_fl.aggregator.medoid import Medoid
from lightning_fl.aggregator.nnm import nnm_matrix
from lightning_fl.aggregator.smea import Smea
from lightning_fl.aggregator.trimmed_mean import TrimmedMean
from lightning_fl.updates.mixed import mix

SIZES = [(4, 1), (7, 2), (7, 3), (9, 3)]


def kappa_trimmed_mean(r):
    return 6 * r * (1 + r)


def kappa_krum(r):
    return 6 * (1 + r)


def kappa_median(r):
    return 4 * (1 + r) ** 2


def mixed(x, f):
    """Updates mixed with their neighbours."""
    rows = Updates(x)
    return mix(rows, nnm_matrix(rows.centred.gram, f)).rows


# The rule for f, and its kappa as a function of r = f / (n - 2f); after mixing, too.
RULES = {
    "trimmed_mean": (lambda x, f: TrimmedMean(f)(x), kappa_trimmed_mean),
    "krum": (lambda x, f: Krum(f, "n-f-1")(x), kappa_krum),
    "geometric_median": (lambda x, f: GeometricMedian()(x), kappa_median),
    "median": (lambda x, f: Median("mean")(x), kappa_median),
}


RULES |= {
    f"nnm_{name}": (
        lambda x, f, rule=rule: rule(mixed(x, f), f),
        lambda r, kappa=kappa: 8 * r / (1 + r) * (kappa(r) + 1),  # f / (n - f) = r / (1 + r)
    )
    for name, (rule, kappa) in RULES.items()
}


def excess(x, result, f):
    """The largest ||F - mean_S||^2 over the variance of S, of all S; inf where that variance is 0 and F is not S's."""
    members = np.array([[i in subset for i in range(len(x))] for subset in combinations(range(len(x)), len(x) - f)])
    means = members @ x / (len(x) - f)
    errors = np.sum((result - means) ** 2, axis=1)
    variances = np.sum(members * np.sum((x - means[:, None]) ** 2, axis=2), axis=1) / (len(x) - f)
    wrong = errors > 1e-18 * np.abs(x).max() ** 2
    with np.errstate(divide="ignore"):
        return float(np.max(errors[wrong] / variances[wrong], initial=0.0))


def start(draw, n, f):
    """Rows of every kind: round, in two heaps, on a grid, with long tails, on a line."""
    d = int(draw.integers(1, 4))
    x = draw.standard_normal((n, d))
    kind = draw.integers(5)
    if kind == 1:
        x = 0.1 * x + draw.integers(0, 2, (n, 1))
    elif kind == 2:
        x = draw.integers(0, 3, (n, d)).astype(float)
    elif kind == 3:
        x = draw.standard_cauchy((n, d))
    elif kind == 4:
        x[: n - f] *= 1e-2
    return x


def search(rule, n, f, starts, steps, seed):
    """Climb from random starts to where the rule fares worst; the highest excess met."""
    draw, highest = np.random.default_rng(seed), 0.0
    for _ in range(starts):
        x = start(draw, n, f)
        here = excess(x, rule(torch.tensor(x), f).numpy(), f)
        for _ in range(steps - 1):
            moved = x + draw.standard_normal(x.shape) * (draw.random((n, 1)) < 0.3) * 10 ** draw.uniform(-2, 0.5)
            there = excess(moved, rule(torch.tensor(moved), f).numpy(), f)
            if there >= here:
                x, here = moved, there
        highest = max(highest, here)
    return highest


@pytest.mark.slow
@pytest.mark.parametrize(("n", "f"), SIZES)
@pytest.mark.parametrize("name", RULES)
def test_a_thousand_problems_do_not_exceed_kappa(name, n, f):
    """250 for each size; what is found is no less than a third of what every rule must have."""
    rule, kappa = RULES[name]
    r = f / (n - 2 * f)
    highest = search(rule, n, f, starts=25, steps=10, seed=n + f)
    assert r / 3 < highest <= kappa(r)


def test_the_search_sees_that_averaging_has_no_kappa():
    assert search(lambda x, f: Average()(x), 7, 2, starts=25, steps=10, seed=0) > 10 * kappa_median(2 / 3)


@pytest.mark.parametrize(("n", "f"), SIZES)
@pytest.mark.parametrize(
    "rule",
    [
        *(rule for rule, _ in RULES.values()),
        lambda x, f: MultiKrum(f, None, "n-f-1")(x),
        lambda x, f: Mda(f)(x),
        lambda x, f: Smea(f)(x),
        lambda x, f: Caf(f)(x),
        lambda x, f: Aksel(f)(x),
        lambda x, f: Medoid()(x),
    ],
)
def test_no_rule_is_better_than_the_lower_bound(rule, n, f):
    """n - f rows of 0 and f of 1: a kappa means the answer 0, and S with all the ones sees an error of f / (n - 2f)."""
    x = np.array([[0.0]] * (n - f) + [[1.0]] * f)
    result = rule(torch.tensor(x), f).numpy()
    assert result.tolist() == [0]
    assert excess(x, result, f) == pytest.approx(f / (n - 2 * f), rel=1e-12)
