import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_fl import SettingError, Updates
from lightning_fl.aggregator.rejection import (
    AverageRejection,
    SelfRejection,
    Zeno,
    average_rejection_weights,
    self_rejection_weights,
    zeno_weights,
)
from lightning_fl.contract import hostile, world
from tests.aggregator import reference

N, D, F = 9, 6, 2
RATE, RHO = 0.3, 0.7


def problem(name: str, dtype=torch.float64) -> torch.Tensor:
    return torch.as_tensor(reference.problem(name, N, D), dtype=dtype)


def average(weigh, x, *args):
    """The mean of the updates that the rule keeps."""
    return Updates(x).combine(weigh(x, *args))


def server_loss(updates):
    """A quadratic loss after each update, for one row (NumPy) or many."""
    matrix = torch.linspace(-1, 1, 4 * D, dtype=torch.float64).view(D, 4).cos()
    rows = torch.as_tensor(updates)
    values = (1 - RATE * rows.to(torch.float64) @ matrix).square().sum(-1)
    return values.to(rows.dtype) if rows.ndim == 2 else values.item()


RULES = {
    "self": (
        lambda x, f: average(self_rejection_weights, x, f, server_loss),
        lambda x, f: reference.self_rejection(x, f, server_loss),
    ),
    "average": (
        lambda x, f: average(average_rejection_weights, x, f, server_loss),
        lambda x, f: reference.average_rejection(x, f, server_loss),
    ),
    "zeno": (
        lambda x, f: average(zeno_weights, x, f, server_loss, RATE, RHO),
        lambda x, f: reference.zeno(x, f, server_loss, RATE, RHO),
    ),
}


@pytest.mark.parametrize("f", [0, F, N - 1])
@pytest.mark.parametrize("name", reference.PROBLEMS)
@pytest.mark.parametrize("rule", RULES)
def test_agrees_with_the_loop(rule, name, f):
    ours, loop = RULES[rule]
    x = problem(name)
    np.testing.assert_allclose(ours(x, f).numpy(), loop(x.numpy(), f), rtol=1e-9, atol=1e-12)


def test_leave_one_out_means_made_in_several_parts_agree_with_the_loop():
    x = torch.as_tensor(reference.problem("random", 40, D))
    expected = reference.average_rejection(x.numpy(), 7, server_loss)
    np.testing.assert_allclose(average(average_rejection_weights, x, 7, server_loss).numpy(), expected, rtol=1e-9)


def test_literal_self_and_average():
    """Keeping the f best would give 2.5 and 12, keeping n - f at the other end swaps the two answers."""
    x = torch.tensor([[1.0], [2.0], [4.0], [8.0], [16.0]])
    losses = torch.tensor([0.1, 0.3, 0.2, 0.9, 0.5])
    assert average(self_rejection_weights, x, 2, losses).item() == pytest.approx((1 + 2 + 4) / 3)
    assert average(average_rejection_weights, x, 2, losses).item() == pytest.approx((8 + 16 + 2) / 3)


def test_literal_leave_one_out():
    """Leave-one-out means 4, 3.5, 1.5 have losses 4, 2.25, 0.25.  Divided by n = 3, 3.5 would come."""
    x = torch.tensor([[1.0], [2.0], [6.0]])
    assert average(average_rejection_weights, x, 1, lambda rows: (rows[:, 0] - 2) ** 2).item() == 1.5


def test_literal_zeno():
    """f = 3 leaves one.  Scores with (0.1 u)^2: 1, 0.29, 0.9001, 0.31.

    Without a price 10 has the least, with u^2 (Xie et al.) 0.1, with 0.1 u or 0.1 u^2 (one rate only) 1.
    """
    x = torch.tensor([[10.0], [3.0], [0.1], [1.0]])
    assert average(zeno_weights, x, 3, torch.tensor([0.0, 0.2, 0.9, 0.3]), 0.1, 1.0).item() == 3.0


@pytest.mark.parametrize("rule", RULES)
def test_losses_may_be_given(rule):
    x = problem("random")
    losses = server_loss(x if rule != "average" else (x.sum(0) - x) / (N - 1))
    given_losses = {
        "self": lambda: average(self_rejection_weights, x, F, losses),
        "average": lambda: average(average_rejection_weights, x, F, losses),
        "zeno": lambda: average(zeno_weights, x, F, losses, RATE, RHO),
    }[rule]()
    torch.testing.assert_close(given_losses, RULES[rule][0](x, F))


def test_a_loss_that_is_no_number_is_the_largest():
    """Rejected for its own loss, kept where the others' loss without it counts (spec, trap 2)."""
    x, losses = torch.eye(3), torch.tensor([0.1, torch.nan, 0.2])
    assert self_rejection_weights(x, 1, losses).tolist() == [0.5, 0, 0.5]
    assert average_rejection_weights(x, 1, losses).tolist() == [0, 0.5, 0.5]


def test_one_huge_row_is_seen_by_the_others_absence():
    """Mean minus row would lose the others beside 1e30."""
    x = problem("random", torch.float32)
    x[4] = 1e30
    others = np.delete(x.numpy(), 4, axis=0)
    np.testing.assert_allclose(
        average(average_rejection_weights, x, 1, server_loss).numpy(), others.mean(axis=0), rtol=1e-5
    )


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=60, deadline=None)
@given(values=hostile.lists(F, least=0), seed=st.integers(0, 10**6), entries=st.sampled_from([2, None]))
def test_hostile_rows_leave_the_mean_inside_the_honest_rows(rule, values, seed, entries):
    """Average-rejection: as long as at most one of them is huge, for two hide each other."""
    if rule == "average" and sum(value in (1e30, -1e30) for value in values) > 1:
        return
    honest = 0.1 * torch.randn(N - len(values), D, generator=torch.Generator().manual_seed(seed))
    result = RULES[rule][0](hostile.rows(honest, values, entries), F)
    assert result.isfinite().all()
    assert result.abs().max() <= honest.abs().max() * (1 + 1e-6)


TIED = {
    "self": lambda x, order=None: self_rejection_weights(x, 1, torch.zeros(len(x)), order),
    "average": lambda x, order=None: average_rejection_weights(x, 1, torch.full((len(x),), torch.inf), order),
    "zeno": lambda x, order=None: zeno_weights(x, 1, torch.full((len(x),), torch.inf), RATE, RHO, order),
}


@pytest.mark.parametrize("rule", TIED)
def test_of_equal_losses_the_order_given_decides(rule):
    x = torch.tensor([[1.0], [2.0], [3.0]])
    assert TIED[rule](x, torch.tensor([2, 0, 1])).tolist() == [0.5, 0, 0.5]
    assert TIED[rule](x, torch.tensor([1, 2, 0])).tolist() == [0, 0.5, 0.5]


@pytest.mark.parametrize("rule", TIED)
def test_nobody_is_preferred_for_where_he_stands(rule):
    """By itself, and drawn for a round; copies are one another's equals."""
    for x in [torch.tensor([[1.0], [2.0], [3.0], [4.0]]), torch.tensor([[1.0], [2.0], [2.0], [4.0]])]:
        for order in [[3, 2, 1, 0], [1, 3, 0, 2]]:
            weights, moved = TIED[rule](x), TIED[rule](x[order])
            torch.testing.assert_close(moved @ x[order].double(), weights @ x.double())
            if len(x.unique()) == 4:
                assert torch.equal(moved, weights[order])


def test_huge_rows_do_not_favour_who_comes_first():
    """Under three huge rows no leave-one-out loss is finite: whom the rule drops changes with the round and the client.

    A stable sort kept the first rows in every round.
    """
    rows = torch.cat([world.honest_updates(6), torch.full((3, world.D), 1e38)])
    rule, ids = AverageRejection(3), list(range(9))
    kept = torch.stack([rule.weights(Updates(rows, ids=ids), world.oracle(index=t)) > 0 for t in range(60)])
    assert 20 < kept.sum(0).min() <= kept.sum(0).max() < 60
    back = torch.stack(
        [rule.weights(Updates(rows.flip(0), ids=ids[::-1]), world.oracle(index=t)).flip(0) > 0 for t in range(60)]
    )
    assert torch.equal(back, kept)


@pytest.mark.parametrize("rule", [SelfRejection(3), Zeno(3)])
def test_who_of_equal_losses_stays_changes_with_the_round(rule):
    """After an update of 1e38 there is no finite loss."""
    updates = Updates(torch.full((9, world.D), 1e38), ids=range(9))
    kept = {tuple(rule.weights(updates, world.oracle(index=t)).tolist()) for t in range(10)}
    assert len(kept) > 1


@pytest.mark.parametrize(
    ("rule", "plain"),
    [
        (SelfRejection(F), lambda x, losses: average(self_rejection_weights, x, F, losses)),
        (AverageRejection(F), lambda x, losses: average(average_rejection_weights, x, F, losses)),
        (Zeno(F, RHO), lambda x, losses: average(zeno_weights, x, F, losses, 0.1, RHO)),
        # For which others go than for no price.
        (Zeno(F, 5.0), lambda x, losses: average(zeno_weights, x, F, losses, 0.1, 5.0)),
    ],
)
def test_the_class_asks_the_server(rule, plain):
    rows, server = world.honest_updates(N), world.oracle(learning_rate=0.1)
    aggregation = rule.aggregate(Updates(rows), server)
    assert torch.equal(aggregation.update, plain(rows, server.losses_after))
    assert sorted(set(aggregation.weights.tolist())) == [0, 1 / (N - F)]
    rule.check(N, world.CLASSES)
    with pytest.raises(SettingError, match=r"n >= f \+ 1 updates"):
        rule.check(F, world.CLASSES)


def test_there_is_one_loss_for_each_update():
    with pytest.raises(SettingError, match=r"one number for each of 9 updates, got \(3,\)"):
        self_rejection_weights(problem("random"), F, torch.ones(3))


def test_zeno_is_robust_where_length_has_its_price():
    assert Zeno(f=1).robust
    assert not Zeno(f=1, rho=0.0).robust
