import numpy as np
import pytest
import torch

from lightning_fl import Updates
from lightning_fl.aggregator.alignins import Alignins
from lightning_fl.updates.ordered import largest_entries
from tests.aggregator import reference
from tests.aggregator import reference_field as field
from tests.aggregator.server import Server


def ask(x, w, weights=None, **settings):
    x = torch.as_tensor(x)
    weights = None if weights is None else torch.tensor(weights).to(x)
    return Alignins(**settings).aggregate(Updates(x, weights), Server(torch.as_tensor(w).to(x)))


PROBLEMS = {
    "a": (reference.Z, np.ones(3), {"sparsity": 0.7}),
    "b": (field.V, field.W10, {"sparsity": 0.3}),
    "c": (field.V[:5], field.W10, {}),
    "c, lower": (field.V[:5], field.W10, {"median": "lower"}),
    "d": (field.V, field.W10, {"lambda_s": 0.5}),
    "e": (field.S, np.ones(4), {"sparsity": 0.5, "lambda_c": 2.0, "lambda_s": 2.0}),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_small_problems(name):
    x, w, settings = PROBLEMS[name]
    loop = {"kind" if key == "median" else key: value for key, value in settings.items()}
    expected, found = field.alignins(x, w, **loop)
    result = ask(x, w, **settings)
    np.testing.assert_allclose(result.update.numpy(), expected, rtol=1e-12, atol=1e-15)
    assert (result.trust > 0).nonzero().flatten().tolist() == found["kept"]
    assert result.diagnostics == {"kept": len(found["kept"])}
    np.testing.assert_allclose(ask(-x, w, **settings).update.numpy(), -expected, rtol=1e-12, atol=1e-15)


def test_literal():
    """Rows 5 and 6 of Z point away from w; p = (1, 1, -1), and of two entries their largest have the wrong sign."""
    _, found = field.alignins(reference.Z, np.ones(3), sparsity=0.7)
    assert (found["p"], found["k"], found["mpsa"]) == ([1, 1, -1], 2, [1, 1, 1, 1, 1, 0, 0])
    assert found["tda"][0] == pytest.approx(2 / 18**0.5)
    kept = ask(reference.Z, np.ones(3), sparsity=0.7).trust.nonzero().flatten().tolist()
    assert not {5, 6} & set(kept)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("problem", ["random", "rank-deficient", "badly scaled", "offset"])
def test_agrees_with_the_loop(problem, dtype):
    x, w = (torch.as_tensor(reference.problem(name, 12, 40), dtype=dtype) for name in (problem, "offset"))
    for weights in (None, np.arange(1.0, 13)):
        expected, _ = field.alignins(x.double().numpy(), w[0].double().numpy(), weights=weights)
        found = ask(x, w[0], weights).update
        np.testing.assert_allclose(found.numpy(), expected, rtol=2e-5, atol=2e-6 * max(abs(expected).max(), 1e-3))


def test_where_nobody_is_usual_the_update_is_zero():
    """Two rows are one standard deviation from the median each."""
    found = ask(np.array([[1.0, 2.0], [3.0, -1.0]]), np.ones(2))
    assert found.update.tolist() == [0, 0]
    assert found.trust.tolist() == [0, 0]
    assert found.diagnostics["kept"] == 0


def test_of_equally_large_entries_the_first_count():
    row = torch.tensor([1.0, -3.0, 2.0, -2.0, 2.0])
    assert largest_entries(row, 3).tolist() == [False, True, True, True, False]
    assert largest_entries(row, 5).all()


def test_a_majority_of_those_kept_sets_the_length():
    """Two liars with the usual angle and signs among five: honest clients are too far from the median to be kept."""
    x = np.array([[1.0, 0.1], [1.0, -1.0], [1.0, 3.0], [1e6, 1e6], [1e6, 1e6]])
    found = ask(x, np.array([1.0, 1.0]), sparsity=0.5)
    assert found.update.norm() > 1e5
