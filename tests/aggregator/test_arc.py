import numpy as np
import pytest
import torch

from lightning_fl import Updates
from lightning_fl.aggregator.arc import Arc, arc_scales
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.krum import Krum
from lightning_fl.aggregator.normalized import Normalized
from lightning_fl.contract import world
from lightning_fl.updates.mixed import mix


def adaptive_clipping(x, f):
    """What the inner rule is asked about."""
    rows = Updates(x)
    return mix(rows, Arc(Average(), f).mix(rows, world.oracle())[0]).rows


X = [[0.0, 0.0], [1.0, 0.5], [0.2, 2.0], [2.0, 1.3], [1.1, 3.0], [0.7, 1.1], [10.0, -9.0]]


@pytest.mark.parametrize(
    ("f", "radius", "n_clipped", "mean"),
    [
        (1, 3.1953090617, 1, [1.0535792173, 0.8232072759]),
        (2, 2.3853720884, 2, [0.9277440773, 0.7919770799]),
        (3, 2.0099751242, 3, [0.8244566910, 0.7482755140]),
    ],
)
def test_literal(f, radius, n_clipped, mean):
    """E2.  k = floor(12/7), floor(20/7), floor(24/7)."""
    x = torch.tensor(X, dtype=torch.float64)
    clipped = adaptive_clipping(x, f)
    assert clipped.norm(dim=1).max().item() == pytest.approx(radius, abs=1e-9)
    assert (clipped != x).any(1).sum() == n_clipped
    np.testing.assert_allclose(clipped.mean(0).numpy(), mean, atol=1e-9)


@pytest.mark.parametrize(("n", "f", "k"), [(7, 1, 1), (7, 3, 3), (12, 4, 5), (5, 0, 0), (100, 20, 32), (115, 15, 26)])
def test_literal_counts(n, f, k):
    scales = arc_scales(torch.arange(1.0, n + 1).double().square(), f)
    assert (scales < 1).sum() == k
    assert scales.min().item() == pytest.approx((n - k) / n)


def test_equal_and_zero_rows():
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0], [3.0, 4.0], [-5.0, 0.0], [0.0, 0.0]])
    assert torch.equal(adaptive_clipping(x, 1), x)
    assert torch.equal(adaptive_clipping(x, 2), x)
    x[2:4] = 0  # more zero rows than are left unclipped
    assert torch.equal(adaptive_clipping(x, 2), torch.zeros(5, 2))


@pytest.mark.parametrize("rule", [Average(), Krum(3), Normalized()])
def test_weights_are_of_the_updates_as_sent(rule):
    """And trust is in clients, whatever the length of what they sent; data weights and ids stay."""
    rows, weights = world.honest_updates(), torch.arange(1.0, 13.0)
    rows[0] *= 100
    updates = Updates(rows, weights, ids=range(12))
    aggregation = Arc(rule, 3).aggregate(updates, world.oracle())
    torch.testing.assert_close(aggregation.weights.float() @ rows, aggregation.update, rtol=1e-4, atol=1e-5)
    explicit = rule.aggregate(Updates(adaptive_clipping(rows, 3), weights), world.oracle())
    torch.testing.assert_close(aggregation.update, explicit.update)
    torch.testing.assert_close(aggregation.trust, explicit.weights if explicit.trust is None else explicit.trust)
    assert aggregation.update.norm() <= rows[1:].norm(dim=1).max()
