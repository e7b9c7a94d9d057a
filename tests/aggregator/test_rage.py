import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_fl import SettingError
from lightning_fl.aggregator.rage import Rage, rage_weights
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


def test_centred_scores_move_with_a_shift(draw):
    x, shift = torch.randn(N, D, generator=draw).double(), torch.randn(D, generator=draw).double()
    torch.testing.assert_close(Rage(3, True)(x + shift), Rage(3, True)(x) + shift)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 30), hostile.lists(4), st.sampled_from([1, None]), st.booleans())
def test_hostile_rows_do_not_break_it(seed, values, entries, centred):
    """As many steps as hostile rows take the huge ones out; what stays is a convex combination."""
    honest = torch.randn(N, D, generator=torch.Generator().manual_seed(seed))
    result = Rage(len(values), centred)(hostile.rows(honest, values, entries))
    assert result.isfinite().all()
    assert result.norm() <= 1.001 * honest.norm(dim=1).max()


def test_a_non_finite_row_takes_one_step():
    x = torch.as_tensor(reference.problem("random", N, D))
    x[2], x[5] = torch.nan, torch.inf
    rest = x[x.isfinite().all(1)]
    for steps in [1, 2, 5]:
        torch.testing.assert_close(Rage(steps)(x), Rage(max(steps - 2, 0))(rest))
    torch.testing.assert_close(Rage(0)(x), rest.mean(0))


@pytest.mark.parametrize("centred", [False, True])
def test_weights_make_the_update(centred):
    updates = world.updates()
    aggregation = Rage(3, centred).aggregate(updates, world.oracle())
    assert aggregation.weights.sum().item() == pytest.approx(1)
    torch.testing.assert_close(aggregation.weights.float() @ updates.rows, aggregation.update)


def test_refuses_settings_out_of_range():
    with pytest.raises(SettingError, match="rage needs n_iterations >= 0, got -1"):
        Rage(-1)
    message = r"n >= n_iterations \+ 1 updates, got n=6 and n_iterations=6; change n_iterations"
    with pytest.raises(SettingError, match=message):
        Rage(6)(torch.randn(6, 2))
    with pytest.raises(SettingError, match=message):
        Rage(6).check(6, 3)
    Rage(5, False).check(6, 3)


def test_refuses_what_no_rule_can_serve():
    with pytest.raises(SettingError, match="at least one update without NaN"):
        Rage(1)(torch.full((6, 2), torch.nan))
    with pytest.raises(SettingError, match=r"\(n, d\)"):
        Rage(0)(torch.zeros(0, 3))
    with pytest.raises(SettingError, match="floating point"):
        Rage(1)(torch.ones(6, 3, dtype=torch.int64))
