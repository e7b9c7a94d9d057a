import numpy as np
import pytest
import torch

from lightning_fl import Updates
from lightning_fl.aggregator.faba import Faba
from lightning_fl.contract import world
from tests.aggregator import reference


def faba(x, f):
    """Rows left, by a loop typed from the algorithm."""
    left = list(range(len(x)))
    for _ in range(f):
        mean = sum(x[i] for i in left) / len(left)
        left.remove(max(left, key=lambda i: np.linalg.norm(x[i] - mean)))
    return left


@pytest.mark.parametrize("f", [0, 1, 5])
@pytest.mark.parametrize("problem", reference.PROBLEMS)
def test_agrees_with_the_loop(problem, f):
    x = reference.problem(problem, 11, 6)
    left = faba(x, f)
    found = Faba(f).aggregate(Updates(torch.as_tensor(x)), world.oracle())
    assert found.weights.nonzero().flatten().tolist() == left
    np.testing.assert_allclose(found.update, x[left].mean(0), rtol=1e-9, atol=1e-12)


def test_broken_rows_go_first():
    x = torch.tensor([[torch.nan], [0.0], [1.0], [2.0], [7.0], [30.0], [1.0]])
    assert Faba(3)(x).tolist() == [1.0]
