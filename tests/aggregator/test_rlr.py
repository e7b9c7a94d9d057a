import numpy as np
import pytest
import torch

from lightning_fl import Updates
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.median import Median
from lightning_fl.aggregator.rlr import Rlr
from lightning_fl.contract import world
from tests.aggregator import reference
from tests.aggregator import reference_field as field


@pytest.mark.parametrize("threshold", [0.0, 1.0, 2.0, 3.0, 4.5])
@pytest.mark.parametrize("problem", ["random", "rank-deficient", "badly scaled"])
def test_agrees_with_the_loop(problem, threshold):
    x = reference.problem(problem, 9, 30)
    x[:, ::7] = 0
    for rule, answer in [(Average(), x.mean(0)), (Median("mean"), reference.median(x, "mean"))]:
        expected = field.robust_learning_rate(x, answer, threshold)
        np.testing.assert_allclose(Rlr(rule, threshold)(torch.as_tensor(x)), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (1.0, [1.1, 0, 0.2, 0.6]),  # |sums of signs| are 3, 0, 0 and 2
        (2.0, [1.1, 0, 0.2, 0.6]),
        (3.0, [1.1, 0, 0.2, -0.6]),
        (4.0, [-1.1, 0, 0.2, -0.6]),
    ],
)
def test_literal(threshold, expected):
    """Zeros where the votes cancel would be another reading: it is the sign that turns."""
    found = Rlr(Average(), threshold)(torch.as_tensor(field.S))
    np.testing.assert_allclose(found, expected, atol=1e-12)
    weighted = Rlr(Average(), 3.0)(torch.as_tensor(field.S), weights=torch.tensor([1.0, 1.0, 2.0, 1.0, 5.0]).double())
    np.testing.assert_allclose(weighted, [0.65, -0.2, 1.1, -0.8], atol=1e-12)


def test_the_threshold_may_be_reached_exactly():
    """In Z the signs leave 3, 7 and 1 over."""
    z = torch.as_tensor(reference.Z)
    mean = z.mean(0)
    torch.testing.assert_close(Rlr(Average(), 3.0)(z), mean * torch.tensor([1, 1, -1]))
    torch.testing.assert_close(Rlr(Average(), 5.0)(z), mean * torch.tensor([-1, 1, -1]))
    found = Rlr(Average(), 5.0).aggregate(Updates(z), world.oracle())
    assert found.diagnostics["reversed"] == pytest.approx(2 / 3)
    assert found.weights is None
    assert found.trust.tolist() == pytest.approx([1 / 7] * 7)


def test_a_broken_row_has_no_vote():
    x = torch.tensor([[1.0, 1.0], [1.0, -1.0], [torch.nan, -1.0], [1.0, 1.0]])
    torch.testing.assert_close(Rlr(Median(), 3.0)(x), torch.tensor([1.0, -1.0]))
