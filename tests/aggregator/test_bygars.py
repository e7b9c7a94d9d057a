import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_fl import SettingError, Updates
from lightning_fl.aggregator.bygars import Bygars, bygars_weights
from lightning_fl.contract import hostile, world
from lightning_fl.round import Round
from lightning_fl.server_oracle import GivenServer
from tests.aggregator import reference

N, D = 8, 5
RATE, STEPS, ALPHA = 0.2, 3, 0.05


def problem(name: str, dtype=torch.float64) -> torch.Tensor:
    return torch.as_tensor(reference.problem(name, N, D), dtype=dtype)


class Server(GivenServer):
    """It computes gradients."""

    def __init__(self, gradient, rate):
        super().__init__(None)
        self.round, self.gradient_after = Round(0, rate, 0), lambda update, learning_rate: gradient(update)


def bygars(x, gradient, learning_rate, steps=3, step_size=0.05, trust=None):
    """The rule where earlier rounds have left this trust."""
    rule = Bygars(steps, step_size, carry_over=trust is not None)
    if trust is not None:
        rule.load_state_dict({"first_rate": learning_rate, "trust": dict(enumerate(trust.tolist()))})
    return rule(x, Server(gradient, learning_rate))


def slope(step):
    """The server's gradient at w - step, of a quadratic; NumPy."""
    scales = np.arange(1.0, D + 1)
    return -scales * (np.cos(scales) + step)


def gradient(update):
    """The same, as the rule asks for it."""
    return torch.as_tensor(slope(RATE * update.double().numpy())).to(update)


@pytest.mark.parametrize("carried", [False, True])
@pytest.mark.parametrize("name", reference.PROBLEMS)
def test_agrees_with_the_loop(name, carried):
    x = problem(name)
    trust = torch.linspace(-1, 1, N, dtype=torch.float64) if carried else None
    expected, q = reference.bygars(x.numpy(), slope, RATE, STEPS, ALPHA, trust.tolist() if carried else None)
    np.testing.assert_allclose(bygars(x, gradient, RATE, STEPS, ALPHA, trust).numpy(), expected, rtol=1e-9, atol=1e-15)
    found, weights = bygars_weights(Updates(x), gradient, RATE, STEPS, ALPHA, trust)
    np.testing.assert_allclose(found.numpy(), q, rtol=1e-9)
    np.testing.assert_allclose((weights @ x).numpy(), expected, rtol=1e-9, atol=1e-15)


def test_literal():
    """A constant gradient (3, 4) gives q = 3 * 0.05 * 0.1 * (0.6, -0.8).

    Without the rate in q's step the result would be (0.09, 0.12), with the gradient as it is (0.045, 0.06), with
    updates as they are (0.036, 0.3), after one step (0.003, 0.004), without negative trust (0.009, 0).
    """
    x = torch.tensor([[2.0, 0.0], [0.0, -5.0]])
    result = bygars(x, lambda update: torch.tensor([3.0, 4.0]), learning_rate=0.1)
    torch.testing.assert_close(result, torch.tensor([0.009, 0.012]))


def test_asks_for_the_gradient_where_the_trust_so_far_leads():
    asked = []
    x = torch.tensor([[2.0, 0.0], [0.0, -5.0]])
    bygars(x, lambda update: asked.append(update.tolist()) or torch.tensor([3.0, 4.0]), 1.0, steps=3, step_size=0.5)
    np.testing.assert_allclose(asked, [[0, 0], [0.3, 0.4], [0.6, 0.8]], rtol=1e-6)


def test_a_gradient_without_direction_teaches_nothing():
    x = problem("random")
    for value in (0.0, torch.nan, torch.inf):
        assert bygars(x, lambda update, value=value: torch.full_like(update, value), RATE).tolist() == [0] * D


@settings(max_examples=60, deadline=None)
@given(
    values=hostile.lists(N - 1, least=0, also=[3e38, 1e-30, 1e-42]),
    seed=st.integers(0, 10**6),
    entries=st.sampled_from([2, None]),
)
def test_no_number_of_hostile_rows_makes_it_large(values, seed, entries):
    honest = torch.randn(N - len(values), D, generator=torch.Generator().manual_seed(seed))
    x = hostile.rows(honest, values, entries)
    result = bygars(x, gradient, RATE, STEPS, ALPHA)
    assert result.isfinite().all()
    assert result.norm() <= N * STEPS * ALPHA * RATE * (1 + 1e-5)
    if not x.isfinite().all():
        finite = x[x.isfinite().all(1)]
        torch.testing.assert_close(result, bygars(finite, gradient, RATE, STEPS, ALPHA), rtol=1e-4, atol=1e-7)


def test_errors():
    x = problem("random")
    with pytest.raises(
        SettingError, match=r"server's gradient for bygars must be a tensor of shape \(\d+,\), got .*\(3,\)"
    ):
        bygars(x, lambda update: torch.ones(3), RATE)
    with pytest.raises(SettingError, match="a learning rate above 0, got 0"):
        Bygars(STEPS, ALPHA, False).aggregate(world.updates(), world.oracle(learning_rate=0.0))


def expect(server, rows, first_rate, trust=None):
    """What the paper's server moves by, -eta_0 sum_i q_i h_i, and q."""
    moved, q = reference.bygars(
        rows.double().numpy(),
        lambda step: server.gradient_after(torch.as_tensor(step).float(), 1.0).double().numpy(),
        first_rate,
        STEPS,
        ALPHA,
        trust,
    )
    return -first_rate * moved, q


def test_the_class_takes_its_settings_and_reports_trust():
    rows, server = world.honest_updates(N), world.oracle(0.1)
    rows[3] *= -1
    aggregation = Bygars(steps=5, step_size=0.2).aggregate(Updates(rows), server)
    trust, weights = bygars_weights(Updates(rows), lambda update: server.gradient_after(update, 0.1), 0.1, 5, 0.2)
    torch.testing.assert_close(aggregation.trust, trust)
    torch.testing.assert_close(aggregation.weights, weights)
    assert aggregation.trust[3] < 0


@pytest.mark.parametrize("carry_over", [False, True])
def test_rounds_use_the_first_rate_and_carry_trust_over_if_asked(carry_over):
    """Round 1 at 0.1, round 2 at 0.05: the server's step of -0.05 times the update is still the paper's at 0.1."""
    rule, trust = Bygars(STEPS, ALPHA, carry_over), None
    for round_, rate in enumerate((0.1, 0.05, 0.025)):
        rows, server = world.honest_updates(N, seed=round_), world.oracle(rate)
        tried = rule.aggregate(Updates(-10 * rows, ids=range(N)), server)  # an attacker's trial leaves no trace
        aggregation = rule.aggregate(Updates(rows, ids=range(N)), server)
        assert not torch.equal(tried.update, aggregation.update)
        expected, q = expect(server, rows, 0.1, trust)
        np.testing.assert_allclose((-rate * aggregation.update).numpy(), expected, rtol=1e-3, atol=1e-9)
        np.testing.assert_allclose((aggregation.weights @ rows.double()).numpy(), aggregation.update, rtol=1e-4)
        rule.on_train_batch_end(None, None, None, None, round_)
        trust = q if carry_over else None


def test_trust_is_a_clients_own():
    """Clients 1, 3 and 5, then 1, 2, 3, then all six: each goes on from the last trust in it, a new one from 0."""
    rule, trust = Bygars(STEPS, ALPHA, True), {}
    for round_, ids in enumerate(([1, 3, 5], [1, 2, 3], range(6))):
        rows, server = world.honest_updates(len(ids), seed=round_), world.oracle(0.1)
        aggregation = rule.aggregate(Updates(rows, ids=ids), server)
        expected, q = expect(server, rows, 0.1, np.array([trust.get(client, 0.0) for client in ids]))
        np.testing.assert_allclose((-0.1 * aggregation.update).numpy(), expected, rtol=1e-3, atol=1e-9)
        rule.on_train_batch_end(None, None, None, None, round_)
        trust |= dict(zip(ids, q, strict=True))


def test_buckets_are_no_clients():
    with pytest.raises(SettingError, match=r"carries trust over by client.*set carry_over=false"):
        Bygars(STEPS, ALPHA, True).aggregate(world.updates(N), world.oracle(0.1))
