import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_fl import SettingError
from lightning_fl.aggregator.rage import Rage, rage, rage_weights
from lightning_fl.contract import hostile, world
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
    result = rage(x, n_iterations, centred)
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
    assert rage(x, 1, centred=True).item() == pytest.approx((56 * 1 + 65 * 2) / 121)
    assert rage(x, 1, centred=False).item() == pytest.approx((224 * 1 + 221 * 2) / 445)
    assert rage(x, 2, centred=True).item() == pytest.approx(2)  # mu = 1.54 is nearer to 2
    assert rage(x, 2, centred=False).item() == pytest.approx(1)


def test_literal_in_the_plane():
    """From the loop.  v of the rows as sent: (1.357, 0.918); v without the weights: (0.870, 1.219)."""
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [4.0, 3.0], [5.0, 1.0], [-2.0, 6.0]], dtype=torch.float64)
    torch.testing.assert_close(rage(x, 2), torch.tensor([0.74388094, 1.1411847]).double())
    torch.testing.assert_close(rage(x, 2, centred=True), torch.tensor([1.23179638, 1.2252162]).double())


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
    assert rage(x, 3, centred=True).item() in {1.0, 2.0, 4.0}
    assert rage(x[:2], 1, centred=True).item() == 1.5
    assert torch.equal(rage(torch.ones(5, 3), 4), torch.ones(3))
    assert torch.equal(rage(torch.zeros(5, 3), 4, centred=True), torch.zeros(3))


@pytest.mark.parametrize("seed", range(10))
def test_moves_with_the_rows(seed):
    """Scale, rotation and order; centred scores allow translation too."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(N, D, generator=draw, dtype=torch.float64)
    shift = torch.randn(D, generator=draw, dtype=torch.float64)
    rotation = torch.linalg.qr(torch.randn(D, D, generator=draw, dtype=torch.float64)).Q
    order = torch.randperm(N, generator=draw)
    torch.testing.assert_close(rage((3 * x @ rotation)[order], 3), 3 * rage(x, 3) @ rotation)
    torch.testing.assert_close(rage(x + shift, 3, True), rage(x, 3, True) + shift)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 30), hostile.lists(4), st.sampled_from([1, None]), st.booleans())
def test_hostile_rows_do_not_break_it(seed, values, entries, centred):
    """As many steps as hostile rows take the huge ones out; what stays is a convex combination."""
    honest = torch.randn(N, D, generator=torch.Generator().manual_seed(seed))
    result = rage(hostile.rows(honest, values, entries), len(values), centred)
    assert result.isfinite().all()
    assert result.norm() <= 1.001 * honest.norm(dim=1).max()


def test_a_non_finite_row_takes_one_step():
    x = torch.as_tensor(reference.problem("random", N, D))
    x[2], x[5] = torch.nan, torch.inf
    rest = x[x.isfinite().all(1)]
    for steps in [1, 2, 5]:
        torch.testing.assert_close(rage(x, steps), rage(rest, max(steps - 2, 0)))
    torch.testing.assert_close(rage(x, 0), rest.mean(0))


@pytest.mark.parametrize("centred", [False, True])
def test_the_class_gives_the_functions_update_and_its_weights(centred):
    updates = world.updates()
    aggregation = Rage(3, centred).aggregate(updates, world.oracle())
    assert torch.equal(aggregation.update, rage(updates.rows, 3, centred))
    assert aggregation.weights.sum().item() == pytest.approx(1)
    torch.testing.assert_close(aggregation.weights.float() @ updates.rows, aggregation.update)


@pytest.mark.parametrize("n_iterations", [-1, 6])
def test_refuses_settings_out_of_range(n_iterations):
    message = rf"n >= n_iterations \+ 1 updates, got n=6 and n_iterations={n_iterations}; change n_iterations"
    with pytest.raises(SettingError, match=message):
        rage(torch.randn(6, 2), n_iterations)
    with pytest.raises(SettingError, match=message):
        Rage(n_iterations, False).check(6, 3)
    Rage(5, False).check(6, 3)


@pytest.mark.usefixtures("unchecked")
def test_refuses_what_no_rule_can_serve():
    with pytest.raises(SettingError, match="at least one update without NaN"):
        rage(torch.full((6, 2), torch.nan), 1)
    with pytest.raises(SettingError, match=r"\(n, d\)"):
        rage(torch.zeros(0, 3), 0)
    with pytest.raises(SettingError, match="floating point"):
        rage(torch.ones(6, 3, dtype=torch.int64), 1)
