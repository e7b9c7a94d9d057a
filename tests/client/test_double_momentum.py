"""mu^2-SGD's momentum against a loop over rounds and clients."""

import pytest
import torch

from lightning_fl import ClientBatch, Round, Samples
from lightning_fl.client.double_momentum import DoubleMomentum
from lightning_fl.client.gradient import Gradient
from lightning_fl.network.parameters import flatten, trainable
from tests.client.test_local_sgd import clients, double, model


class Product(torch.nn.Linear):
    """A model whose gradient at w is w times the input."""

    def __init__(self):
        super().__init__(1, 1, bias=False)

    def sample_losses(self, outputs, targets):
        return outputs[:, 0] * self.weight[0, 0] / 2


def test_four_rounds_by_hand():
    """g at the model of the round, and at that of the round before: 1; 2, 1.5; -1, 1.8; .5, -.7."""
    now, before = [1.0, 2.0, -1.0, 0.5], [1.0, 1.5, 1.8, -0.7]
    weights, inputs = [1.0], [1.0]
    for new, old in zip(now[1:], before[1:], strict=True):  # w_t a = new, w_{t-1} a = old
        inputs.append(old / weights[-1])
        weights.append(new / inputs[-1])
    data = Samples(torch.tensor(inputs)[:, None], torch.zeros(4, dtype=torch.int64), 1)
    net, client, found = Product(), DoubleMomentum(), []
    client.prepare(net, ClientBatch(data, [torch.tensor([0])], [0]))
    for t, weight in enumerate(weights):
        torch.nn.init.constant_(net.weight, weight)
        batch = ClientBatch(data, [torch.tensor([t])], [0])
        found.append(client.updates(net, batch, Round(t, 0.1, 0)).updates.item())
    # d_1 = 1, d_2 = 2 + (1 - 1.5) / 2, d_3 = -1 + 2 (d_2 - 1.8) / 3, d_4 = .5 + 3 (d_3 + .7) / 4
    assert found == pytest.approx([1.0, 1.75, -1 - 0.1 / 3, 0.25], rel=1e-5)


def test_agrees_with_a_loop():
    """Rounds at changing models, clients in changing order and number."""
    batch, net = double(clients()), model()
    client = DoubleMomentum(batch_size=3)
    client.prepare(net, batch)
    d, seen, count = {}, {}, dict.fromkeys(range(4), 0)
    for t, present in enumerate([[0, 1, 2], [3, 1], [0, 1, 2, 3], [2], [3, 0]]):
        with torch.no_grad():
            for parameter in net.parameters():
                parameter += 0.1 * (t + 1)
        part = ClientBatch(batch.samples, [batch.indices[i] for i in present], present)
        found = client.updates(net, part, Round(t, 0.1, 0))
        here = flatten(trainable(net).values())
        for i, upload in zip(present, found.updates, strict=True):
            alone = ClientBatch(batch.samples, [batch.indices[i]], [i])
            expected = Gradient(3).updates(net, alone, Round(t, 0.1, 0)).updates[0]
            count[i] += 1
            if i in d:
                torch.nn.utils.vector_to_parameters(seen[i], net.parameters())
                old = Gradient(3).updates(net, alone, Round(t, 0.1, 0)).updates[0]
                torch.nn.utils.vector_to_parameters(here.clone(), net.parameters())
                expected = expected + (1 - 1 / count[i]) * (d[i] - old)
            d[i], seen[i] = expected, here.clone()
            torch.testing.assert_close(upload, expected, rtol=1e-10, atol=1e-12)
        assert found.sample_gradients == 2 * sum(min(3, len(batch.indices[i])) for i in present)


def test_without_momentum_it_is_a_gradient():
    batch, net = clients(), model().float()
    client = DoubleMomentum()
    client.prepare(net, batch)
    client.updates(net, batch, Round(0, 0.1, 0))
    plain = client.without_momentum().updates(net, batch, Round(1, 0.1, 0)).updates
    assert torch.equal(plain, Gradient().updates(net, batch, Round(1, 0.1, 0)).updates)
    assert client.t.unique().tolist() == [1]
