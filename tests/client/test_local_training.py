"""Local epochs, momentum, weight decay and clipping against torch's own optimizer on one client after the other."""

from dataclasses import replace

import pytest
import torch
from torch.nn.utils import clip_grad_norm_

from lightning_fl import ClientBatch, Round, SettingError
from lightning_fl.client.base import minibatches
from lightning_fl.client.local_sgd import LocalSgd
from lightning_fl.contract import world
from lightning_fl.network.parameters import flatten, trainable

SIZES = [5, 8, 1, 10]


def clients(ids=range(4)):
    data, parts = world.samples(8), torch.randperm(24, generator=torch.Generator().manual_seed(1)).split(SIZES)
    return ClientBatch(replace(data, inputs=data.inputs.double()), [parts[i] for i in ids], list(ids))


def model():
    return world.model().double()


def prepared(**settings):
    client = LocalSgd(client_chunk=1, **settings)
    client.prepare(model(), clients())
    return client


def loop(rounds, draw, optimize, clip=None, reset=True):
    """What each client uploads in each round, by torch's SGD on the mini-batches that it draws."""
    found, kept = [], {}
    for t in range(rounds):
        rows = []
        for client in range(4):
            local = model()
            start = flatten(trainable(local).values()).clone()
            optimizer = optimize(local.parameters())
            if client in kept and not reset:
                optimizer.load_state_dict(kept[client])
            for x, y in draw(t, client):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(local(x), y).backward()
                if clip:
                    clip_grad_norm_(local.parameters(), clip)
                optimizer.step()
            kept[client] = optimizer.state_dict()
            rows.append((start - flatten(trainable(local).values()).detach()) / 0.3)
        found.append(torch.stack(rows))
    return found


def draws(size, **count):
    def draw(t, client):
        for batch in minibatches(clients([client]), size, Round(t, 0.3, 0), **count):
            yield batch.samples.gather(batch.indices[0])

    return draw


@pytest.mark.parametrize(
    ("settings", "torchs", "clip"),
    [
        ({"epochs": 2}, {}, None),
        ({"epochs": 2, "momentum": 0.9, "weight_decay": 0.1}, {"momentum": 0.9, "weight_decay": 0.1}, None),
        ({"steps": 3, "momentum": 0.9, "momentum_reset": False}, {"momentum": 0.9}, None),
        ({"steps": 1, "momentum": 0.9, "momentum_reset": False}, {"momentum": 0.9}, None),
        ({"epochs": 1, "momentum": 0.5, "momentum_reset": False}, {"momentum": 0.5}, None),
        ({"steps": 1, "weight_decay": 0.3}, {"weight_decay": 0.3}, None),
        ({"steps": 4, "clip": 0.3, "weight_decay": 0.1}, {"weight_decay": 0.1}, 0.3),
    ],
)
def test_agrees_with_torchs_sgd(settings, torchs, clip):
    count = {name: value for name, value in settings.items() if name in ("steps", "epochs")}
    reset = settings.get("momentum_reset", True)
    expected = loop(3, draws(4, **count), lambda p: torch.optim.SGD(p, lr=0.3, **torchs), clip, reset)
    client = prepared(batch_size=4, **settings)
    for t, rows in enumerate(expected):
        found = client.updates(model(), clients(), Round(t, 0.3, 0)).updates
        torch.testing.assert_close(
            found, rows, rtol=1e-5 if clip else 1e-9, atol=1e-10
        )  # torch's adds 1e-6 to a length


def test_the_spec_s_problem():
    """Gradient w - 3 from w = 1, three steps at .1: with beta .9, lambda .01 and with neither."""

    class Line(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))

        def forward(self, x):
            return self.w * x

        def sample_losses(self, outputs, targets):
            return (outputs[:, 0] - 3).square() / 2

    data = replace(world.samples(8), inputs=torch.ones(24, 1, dtype=torch.float64))
    batch = ClientBatch(data, [torch.arange(24)], [0])
    for more, w in [({"momentum": 0.9, "weight_decay": 0.01}, 2.021944799), ({}, 3 - 2 * 0.9**3)]:
        found = LocalSgd(3, **more).updates(Line(), batch, Round(0, 0.1, 0)).updates
        assert 1 - 0.1 * found.item() == pytest.approx(w, rel=1e-6)


def test_an_epoch_is_every_sample_once_in_each_round_anew():
    """Ten samples, batches of 4, two epochs: 4, 4, 2, 4, 4, 2; clients with fewer samples stop earlier."""
    one = minibatches(clients(), 4, Round(0, 0.1, 0), epochs=2)
    assert [batch.ids for batch in one] == [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 3], [0, 1, 3], [3], [3]]
    parts = [part for batch in one for i, part in zip(batch.ids, batch.indices, strict=True) if i == 3]
    assert [len(part) for part in parts] == [4, 4, 2, 4, 4, 2]
    held = clients().indices[3].sort().values
    orders = [torch.cat(parts[:3]), torch.cat(parts[3:])]
    for order in orders:
        assert torch.equal(order.sort().values, held)
    assert not torch.equal(*orders)
    later = minibatches(clients([3]), 4, Round(1, 0.1, 0), epochs=2)
    assert not torch.equal(torch.cat([batch.indices[0] for batch in later[:3]]), orders[0])
    alone = minibatches(clients([3]), 4, Round(0, 0.1, 0), epochs=2)
    assert all(torch.equal(batch.indices[0], part) for batch, part in zip(alone, parts, strict=True))
    assert len(minibatches(clients(), None, Round(0, 0.1, 0), epochs=2)) == 2


def test_who_is_absent_keeps_its_momentum_which_goes_on_from_a_checkpoint():
    client, other = (prepared(steps=2, momentum=0.9, momentum_reset=False) for _ in range(2))
    client.updates(model(), clients(), Round(0, 0.3, 0))
    before = client.velocity.clone()
    other.load_state_dict({name: value.clone() for name, value in client.state_dict().items()})
    client.updates(model(), clients([3, 1]), Round(1, 0.3, 0))
    assert (client.velocity != before).any(1).tolist() == [False, True, False, True]
    found = other.updates(model(), clients([1, 3]), Round(1, 0.3, 0))
    assert torch.equal(other.velocity, client.velocity)
    without = client.without_momentum().updates(model(), clients(), Round(2, 0.3, 0)).updates
    fresh = LocalSgd(2, momentum=0.9, client_chunk=1).updates(model(), clients(), Round(2, 0.3, 0)).updates
    assert torch.equal(without, fresh)
    assert torch.equal(other.velocity, client.velocity)
    assert found.updates.shape == (2, 9)


def test_what_cannot_be_is_refused():
    for settings in ({"upload": "mean_gradient"}, {"upload": "tail_average"}, {"sampling": "epoch", "batch_size": 2}):
        with pytest.raises(
            SettingError, match=r"local_sgd uploads the difference of whole epochs, got .* epochs=2; set"
        ):
            LocalSgd(epochs=2, **settings)
    for settings in ({"epochs": 0}, {"momentum": 1.0}, {"weight_decay": -0.1}, {"clip": 0.0}):
        with pytest.raises(SettingError, match="local_sgd needs"):
            LocalSgd(**settings)
    assert prepared(momentum=0.9).serves_server
    assert not prepared(momentum=0.9, momentum_reset=False).serves_server
