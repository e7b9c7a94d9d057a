import numpy as np
import pytest
import torch

from lightning_fl.aggregator.caf import Caf, caf_weights
from lightning_fl.contract import world
from lightning_fl.updates.products import gram_matrix
from tests.aggregator import reference

F = 3
X = torch.tensor(reference.X)

STEPS = [
    (7.0, 23.805444),
    (5.809009, 0.994362),
    (3.828878, 0.484321),
    (1.954793, 0.218435),
    (1.683242, 0.126345),
    (1.351427, 0.111690),
]


@pytest.mark.parametrize(
    ("f", "mean", "counts", "n_steps"),
    [
        (1, [0.83742595, 1.29642301], [0.983378, 0.988906, 0.939782, 0.989826, 0.932796, 0.974321, 0], 2),
        (2, [0.92995229, 1.15446236], [0.24402, 0.814444, 0.86135, 0.952011, 0, 0.957053, 0], 3),
        (3, [0.83726906, 0.82546187], [0, 0.618364, 0, 0, 0, 0.733063, 0], 6),
    ],
)
def test_literal(f, mean, counts, n_steps):
    """(sum c, lambda) of every step tells when it stops: at sum c <= n - f, one step less each."""
    weights, steps = caf_weights(gram_matrix(X), f)
    torch.testing.assert_close(Caf(f)(X), torch.tensor(mean, dtype=torch.float64), rtol=0, atol=1e-6)
    np.testing.assert_allclose(weights.numpy(), np.array(counts) / sum(counts), atol=1e-6)
    np.testing.assert_allclose(steps, STEPS[:n_steps], atol=2e-6)


def test_without_liars_it_is_the_mean():
    weights, steps = caf_weights(gram_matrix(X), 0)
    assert weights.tolist() == pytest.approx([1 / 7] * 7)
    assert steps == []


def test_the_best_step_counts_and_not_the_last():
    """In some of these problems the last step has not the least variance."""
    worse = 0
    for seed in range(200):
        x = np.random.default_rng(seed).standard_normal((7, 2)) * [1, 0.9]
        result, _, steps = reference.caf(x, 3)
        worse += min(steps, key=lambda step: step[1]) != steps[-1]
        np.testing.assert_allclose(Caf(3)(torch.tensor(x)).numpy(), result, rtol=1e-7, atol=1e-9)
    assert worse > 0


def test_three_huge_rows_take_at_most_as_many_steps_as_rows():
    """With the maximum over rows that are out already, more than 20,000."""
    x = torch.randn(12, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[:3] *= 1e4
    weights, steps = caf_weights(gram_matrix(x), 4)
    assert len(steps) <= 12
    assert (weights[:3] < 1e-6).all()


def test_reports_its_steps():
    updates = world.updates()
    aggregation = Caf(F).aggregate(updates, world.oracle())
    _, steps = caf_weights(updates.centred.gram, F)
    assert aggregation.diagnostics == {"steps": len(steps), "variance": min(value for _, value in steps)}
    assert Caf(0).aggregate(updates, world.oracle()).diagnostics == {"steps": 0}
