import numpy as np
import pytest
import torch

from lightning_fl import Updates
from lightning_fl.aggregator.cge import Cge
from lightning_fl.contract import world
from tests.aggregator import reference
from tests.aggregator import reference_field as field


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("f", [0, 1, 2, 5])
@pytest.mark.parametrize("problem", reference.PROBLEMS)
def test_agrees_with_the_loop(problem, f, dtype):
    x = torch.as_tensor(reference.problem(problem, 11, 6), dtype=dtype)
    kept = field.shortest(x.double().numpy(), f)
    found = Cge(f).aggregate(Updates(x), world.oracle())
    assert found.weights.nonzero().flatten().tolist() == kept
    np.testing.assert_allclose(found.update, x.double().numpy()[kept].mean(0), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("x", "f", "kept", "mean"),
    [
        (reference.X, 1, [0, 1, 2, 3, 4, 5], [5 / 6, 7.9 / 6]),
        (reference.X, 2, [0, 1, 2, 3, 5], [0.78, 0.98]),
        (reference.Z, 2, [0, 1, 2, 3, 4], [1.0, 1.94, -0.94]),
        (field.V, 1, [0, 1, 2, 3, 4], [0.26, 0, 0.44, 0.32, -0.5, 0.2, 0.16, 0.06, 0.18, 0.02]),
    ],
)
def test_literal(x, f, kept, mean):
    """A sum in place of the mean would be n - f times as long."""
    found = Cge(f).aggregate(Updates(torch.as_tensor(x)), world.oracle())
    assert found.weights.nonzero().flatten().tolist() == kept
    np.testing.assert_allclose(found.update, mean, rtol=1e-12, atol=1e-15)


def test_of_equally_long_rows_the_first_count_and_broken_ones_never():
    x = torch.tensor([[torch.nan, 0.0], [0.0, 1.0], [1.0, 0.0], [-1.0, 0.0], [5.0, 0.0]])
    assert Cge(2)(x).tolist() == [0, pytest.approx(1 / 3)]
    assert Cge(3)(x).tolist() == [0.5, 0.5]
