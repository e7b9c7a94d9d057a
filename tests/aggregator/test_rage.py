import numpy as np
import pytest
import torch

from lightning_fl.aggregator.rage import Rage, rage_weights
from lightning_fl.updates.products import gram_matrix
from tests.aggregator import reference

N, D = 11, 6


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("n_iterations", [0, 1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", reference.PROBLEMS)
def test_agrees_with_the_loop(name, dtype, n_iterations, centred):
    x = torch.as_tensor(reference.problem(name, N, D), dtype=dtype)
    before, rows = x.clone(), x.double().numpy()
    result = Rage(n_iterations, centred)(x)
    assert result.dtype == dtype
    assert torch.equal(x, before)
    expected = reference.rage(rows, n_iterations, centred)
    spread = np.linalg.norm(rows - rows.mean(0), axis=1).max()
    rounding = torch.finfo(dtype).eps * np.abs(rows).max()
    np.testing.assert_allclose(result.numpy(), expected, rtol=0, atol=1e-4 * spread + 10 * rounding)


def test_literal_on_a_line():
    """By hand.  One step, centred: mu = 6, factors 56/81, 65/81, 0; uncentred: 224/225, 221/225, 0.

    tau not squared would give 1.5556 and 1.4815, taking the worst row out without weighing the others 1.5.
    """
    x = torch.tensor([[1.0], [2.0], [15.0]])
    assert Rage(1, centred=True)(x).item() == pytest.approx((56 * 1 + 65 * 2) / 121)
    assert Rage(1, centred=False)(x).item() == pytest.approx((224 * 1 + 221 * 2) / 445)
    assert Rage(2, centred=True)(x).item() == pytest.approx(2)  # mu = 1.54 is nearer to 2
    assert Rage(2, centred=False)(x).item() == pytest.approx(1)


def test_literal_in_the_plane():
    """From the loop.  v of the rows as sent: (1.357, 0.918); v without the weights: (0.870, 1.219)."""
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [4.0, 3.0], [5.0, 1.0], [-2.0, 6.0]], dtype=torch.float64)
    torch.testing.assert_close(Rage(2)(x), torch.tensor([0.74388094, 1.1411847]).double())
    torch.testing.assert_close(Rage(2, centred=True)(x), torch.tensor([1.23179638, 1.2252162]).double())


def test_copies_of_the_worst_row_go_together():
    """One step is enough, whatever rounding makes of their scores."""
    honest = torch.as_tensor(reference.problem("random", N, 50))
    x = torch.cat([honest, (7 * honest.mean(0) + 3).expand(4, -1)])
    weights = rage_weights(gram_matrix(x), 1, centred=True)
    assert (weights[N:] == 0).all()
    assert (weights[:N] > 0).all()


def test_a_step_that_would_leave_nobody_is_not_taken():
    """Two rows are equally far from their mean; equal rows do not differ at all."""
    x = torch.tensor([[1.0], [2.0], [4.0], [20.0]])
    assert Rage(3, centred=True)(x).item() in {1.0, 2.0, 4.0}
    assert Rage(1, centred=True)(x[:2]).item() == 1.5
    assert torch.equal(Rage(4)(torch.ones(5, 3)), torch.ones(3))
    assert torch.equal(Rage(4, centred=True)(torch.zeros(5, 3)), torch.zeros(3))
