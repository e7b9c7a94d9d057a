"""FRPG's server against (6a), (6b) and (6c), line by line."""

from functools import partial

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR

from lightning_fl import FederatedModule, SettingError
from lightning_fl.client.gradient import Gradient
from lightning_fl.contract import conf, world
from lightning_fl.schedule.power_decay import power_decay
from lightning_fl.server.frpg import Frpg
from tests import training


def slow_server(start, messages, delta, lipschitz):
    """w_{0,k} of each round, from w_{0,0} = v_{0,0} = start; messages[k - 1] is round k's sum of g_n."""
    w = v = start
    broadcast = []
    for k in range(1, len(messages) + 2):
        beta, alpha = 2 / (k + 2), delta / 14 * (k + 2) ** 2 + 1.5 * lipschitz
        u = (1 - beta) * w + beta * v
        w = u - delta * u / alpha
        broadcast.append(w)
        if k <= len(messages):
            v = v - (delta * (v - u) + delta * u + messages[k - 1]) / (delta + alpha * beta)
    return broadcast


@pytest.mark.parametrize(("delta", "lipschitz"), [(0.003, 295.0), (0.5, 2.0), (1.0, 1.0), (0.0, 3.0)])
@pytest.mark.parametrize("zero", [True, False])
def test_broadcasts_what_the_equations_do(zero, delta, lipschitz, draw):
    messages = torch.randn(30, 2, 3, generator=draw, dtype=torch.float64)
    start = torch.zeros(2, 3) if zero else torch.randn(2, 3, generator=draw)
    expected = slow_server(start.double(), messages, delta, lipschitz)
    w = torch.nn.Parameter(expected[0].clone())  # what round 1 broadcasts
    optimizer = Frpg([w], delta, lipschitz)
    for k, message in enumerate(messages, start=1):
        alpha = delta / 14 * (k + 2) ** 2 + 1.5 * lipschitz
        assert optimizer.param_groups[0]["lr"] == pytest.approx(1 / alpha)
        w.grad = message.clone()
        optimizer.step()
        torch.testing.assert_close(w.detach(), expected[k], rtol=1e-12, atol=1e-14)
        assert torch.equal(w.grad, message)


def test_the_first_message_arrives_a_round_late_by_hand():
    # delta 0, L 2: alpha 3 always.  Round 1: beta 2/3, v_1 = -6 / (3 * 2/3) = -3.  Round 2: beta 1/2, w_2 = u_2 =
    # (0 - 3) / 2 = -3/2; v_2 = -3 - 0.  Round 3: beta 2/5, w_3 = 3/5 * -3/2 + 2/5 * -3 = -2.1.
    w = torch.nn.Parameter(torch.zeros(1))
    optimizer, seen = Frpg([w], delta=0.0, lipschitz=2.0), []
    for message in (6.0, 0.0):
        w.grad = torch.tensor([message])
        assert optimizer.step(lambda: 7.0) == 7.0
        seen.append(w.item())
    assert seen == pytest.approx([-1.5, -2.1])


@pytest.mark.parametrize(("delta", "lipschitz"), [(-0.1, 1.0), (2.0, 1.0), (0.0, 0.0), (float("nan"), 1.0)])
def test_settings_out_of_range(delta, lipschitz):
    with pytest.raises(SettingError, match="needs 0 <= delta <= lipschitz and a finite lipschitz > 0, got delta="):
        Frpg([torch.nn.Parameter(torch.zeros(1))], delta, lipschitz)


def test_refuses_a_schedule():
    run = FederatedModule(
        world.model(),
        Gradient(),
        partial(Frpg, delta=0.1, lipschitz=1.0),
        lambda optimizer: LambdaLR(optimizer, power_decay(1.0, 1.0, 0.5)),
    )
    with pytest.raises(SettingError, match="has step sizes of its own, got a schedule; set schedule=constant"):
        training.fit(training.trainer(), run)


def test_conf_gives_the_papers_constants():
    optimizer = conf.make("server", "frpg")([torch.nn.Parameter(torch.zeros(1))])
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1 / (0.003 / 14 * 9 + 442.5))


def test_its_constant_follows_the_clients():
    assert conf.compose("method=frpg", "client.lipschitz=524").server.lipschitz == 524
    assert conf.compose("method=frpg", "client.lipschitz=524", "server.lipschitz=600").server.lipschitz == 600
    assert conf.compose("server=frpg").server.lipschitz == 295


def test_a_round_for_which_nobody_was_drawn_counts():
    """As it does at the clients, whose step sizes go by the number of the round."""
    w = torch.nn.Parameter(torch.ones(2))
    optimizer = Frpg([w], 0.5, 2.0)
    for k, gradient in enumerate([torch.ones(2), None, torch.ones(2)], start=1):
        before, w.grad = w.detach().clone(), gradient
        optimizer.step()
        assert torch.equal(w, before) == (gradient is None)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(1 / (0.5 / 14 * (k + 3) ** 2 + 3))
