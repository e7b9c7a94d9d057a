"""Client momentum against a loop over rounds and clients."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.optim import SGD

from lightning_fl import ClientBatch, FederatedModule, Federation, Round, Samples, SettingError
from lightning_fl.adversary.label_flip import LabelFlip
from lightning_fl.aggregator.fltrust import Fltrust
from lightning_fl.client.gradient import Gradient
from lightning_fl.client.local_sgd import LocalSgd
from lightning_fl.client.momentum import Momentum
from lightning_fl.contract import conf, images, world
from tests import training
from tests.client.test_local_sgd import clients, double, model

STARTS = ["zero", "first", "undamped"]


class Linear(nn.Linear):
    """A model whose gradient is the mean input."""

    def __init__(self):
        super().__init__(1, 1, bias=False)

    def sample_losses(self, outputs, targets):
        return outputs[:, 0]


def uploads(start, gradients, beta=0.9):
    """What one client uploads whose gradients are these numbers, None where it is absent."""
    data = Samples(torch.tensor([[g or 0.0] for g in gradients]), torch.zeros(len(gradients), dtype=torch.int64), 1)
    net, client = Linear(), Momentum(beta, start, steps=1, upload="difference")
    client.prepare(net, ClientBatch(data, [torch.tensor([0])], [3]))
    return [
        client.updates(net, ClientBatch(data, [torch.tensor([t])], [3]), Round(t, 0.1, 0)).updates.item()
        for t, g in enumerate(gradients)
        if g is not None
    ]


@pytest.mark.parametrize(
    ("start", "expected"),
    [("zero", [0.1, 0.29, 0.161]), ("first", [1.0, 1.1, 0.89]), ("undamped", [1.0, 2.9, 1.61])],
)
def test_three_rounds_by_hand(start, expected):
    assert uploads(start, [1.0, 2.0, -1.0]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("start", "expected"), [("zero", [0.5, 1.25]), ("first", [1.0, 1.5]), ("undamped", [1.0, 2.5])]
)
def test_who_is_absent_keeps_its_momentum(start, expected):
    """In the round between nothing happens; as with a gradient of 0 "first" would give 1.25."""
    assert uploads(start, [1.0, None, 2.0], beta=0.5) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("start", STARTS)
def test_the_first_round_of_a_client_is_its_own(start):
    """Client 1 comes in round 2: its first upload is as everybody's first one."""
    data = Samples(torch.tensor([[4.0]]), torch.tensor([0]), 1)
    net, client = Linear(), Momentum(0.75, start, steps=1, upload="difference")
    both = ClientBatch(data, [torch.tensor([0])] * 2, [0, 1])
    client.prepare(net, both)
    client.updates(net, ClientBatch(data, both.indices[:1], [0]), Round(0, 0.1, 0))
    second = client.updates(net, both, Round(1, 0.1, 0)).updates.flatten().tolist()
    assert second == pytest.approx({"zero": [1.75, 1.0], "first": [4.0, 4.0], "undamped": [7.0, 4.0]}[start])


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("start", STARTS)
def test_agrees_with_a_loop(start, steps):
    """Rounds at changing models, clients in changing order and number."""
    batch, net = double(clients()), model()
    client = Momentum(0.8, start, steps=steps, upload="difference", batch_size=3)
    client.prepare(net, batch)
    memory: dict[int, torch.Tensor] = {}
    for t, present in enumerate([[0, 1, 2], [3, 1], [0, 1, 2, 3], [2], [3, 0]]):
        with torch.no_grad():
            for parameter in net.parameters():
                parameter += 0.1
        part = ClientBatch(batch.samples, [batch.indices[i] for i in present], present)
        gradients = LocalSgd(steps, "difference", batch_size=3).updates(net, part, Round(t, 0.1, 0))
        result = client.updates(net, part, Round(t, 0.1, 0))
        assert torch.equal(result.losses, gradients.losses)
        assert result.sample_gradients == gradients.sample_gradients
        for i, g, upload in zip(present, gradients.updates, result.updates, strict=True):
            if start == "undamped":
                memory[i] = 0.8 * memory[i] + g if i in memory else g
            elif start == "first" and i not in memory:
                memory[i] = g
            else:
                memory[i] = 0.8 * memory.get(i, torch.zeros_like(g)) + (1 - 0.8) * g
            torch.testing.assert_close(upload, memory[i], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("start", STARTS)
def test_without_momentum_it_is_fedsgd(start):
    client = Momentum(0.0, start, steps=1, upload="difference")
    client.prepare(world.model(), clients())
    for t in range(3):
        ours = client.updates(world.model(), clients(), Round(t, 0.1, 0)).updates
        assert torch.equal(ours, Gradient().updates(world.model(), clients(), Round(t, 0.1, 0)).updates)


def test_virtual_clients_of_the_server_send_gradients():
    batch = clients()
    client = Momentum(0.9, "zero", steps=1, upload="difference")
    client.prepare(world.model(), batch)
    server = ClientBatch(batch.samples, batch.indices[:2], [-1, -2])
    result = client.updates(world.model(), server, Round(0, 0.1, 0))
    assert torch.equal(result.updates, Gradient().updates(world.model(), server, Round(0, 0.1, 0)).updates)
    assert not client.m.any()
    assert not client.started.any()


@pytest.mark.parametrize("attack", ["bit_flip", "label_flip", "badnets"])
def test_byzantine_clients_have_momentum_or_none(attack):
    """Linear momentum: what they send in round 2 is 0.5 of round 1's gradient and 0.5 of this one's, or this one's."""
    pictures = images.pictures(clients().samples) if attack == "badnets" else clients().samples
    net = images.seeing(world.model()) if attack == "badnets" else world.model()
    batch = ClientBatch(pictures, clients().indices, clients().ids)
    context = replace(world.context(), model=net, byzantine=batch)
    sent = {}
    for momentum in ["own", "none"]:
        client = Momentum(0.5, "zero")
        client.prepare(net, batch)
        adversary = conf.make("adversary", attack, momentum=momentum)
        sent[momentum] = [
            adversary.attack(world.updates(), len(batch), replace(context, client=client, round=Round(t, 0.1, 0)))
            for t in range(2)
        ]
        assert client.m.any() == client.started.all() == (momentum == "own")
    raw = conf.make("adversary", attack).attack(world.updates(), len(batch), replace(context, client=Gradient()))
    for own, none, share in zip(sent["own"], sent["none"], [0.5, 0.75], strict=True):
        torch.testing.assert_close(none, raw)
        torch.testing.assert_close(own, share * raw)
    with pytest.raises(SettingError, match="momentum must be one of own, none, got 'both'"):
        type(adversary)(momentum="both")


def fit(adversary, beta, rounds=2):
    """Train under a rule with server data; four honest clients and two that replace others."""
    client = Momentum(beta, "zero", steps=1, upload="difference")
    run = FederatedModule(world.model(), client, partial(SGD, lr=0.1))
    data = training.data(Federation(6, 2, "replacement", "uniform"))
    training.fit(training.trainer([conf.make("aggregator", "fltrust"), adversary], rounds), run, data)
    return run, data


def test_trains_with_a_rule_that_has_server_data_and_with_byzantine_clients_that_train():
    run, data = fit(LabelFlip(), 0.75, rounds=1)
    batch = data.everybody
    for i, indices in zip(batch.ids, batch.indices, strict=True):
        x, y = data.train.gather(indices)
        net = world.model()
        loss = nn.functional.cross_entropy(net(x), 2 - y if i >= 4 else y)
        g = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(net.parameters()))])
        torch.testing.assert_close(run.client.m[i], 0.25 * g)
    assert isinstance(run.aggregator, Fltrust)


@pytest.mark.parametrize("beta", [-0.1, 1.0, 1.5, float("nan")])
def test_beta_out_of_range(beta):
    with pytest.raises(SettingError, match=rf"momentum needs (a finite )?0 <= beta < 1, got {beta}"):
        Momentum(beta, "zero", steps=1, upload="difference")


def test_unknown_start():
    with pytest.raises(SettingError, match=r"momentum's start must be one of zero, first, undamped, got 'none'"):
        Momentum(0.9, "none", steps=1, upload="difference")
