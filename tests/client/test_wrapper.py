"""Clients that change what others send, in training."""

import pytest
import torch

from lightning_fl import ClientBatch, FederatedModule, Federation, Round
from lightning_fl.adversary.bit_flip import BitFlip
from lightning_fl.adversary.ipm import Ipm
from lightning_fl.aggregator.average import Average
from lightning_fl.client.gradient import Gradient
from lightning_fl.client.momentum import Momentum
from lightning_fl.client.private import Private
from lightning_fl.client.random_mask import RandomMask
from lightning_fl.client.sign import Sign
from lightning_fl.client.top_k import TopK
from lightning_fl.contract import world
from tests import training


class Seeing(Average):
    """Keeps the rows of the last round."""

    def aggregate(self, updates, server):
        self.rows = updates.rows.clone()
        return super().aggregate(updates, server)


@pytest.mark.parametrize("make", [lambda c: RandomMask(c, 1.0), lambda c: TopK(c, 1.0)])
def test_what_is_wrapped_reads_too(make):
    read = make(Sign(Gradient())).read(torch.randn(1, 100), [0], Round(0, 0.1, 0))
    assert len(read.abs().unique()) == 1


@pytest.mark.parametrize("attack", [Ipm(2.0), BitFlip()], ids=["forged", "trained"])
def test_attackers_send_what_honest_clients_could(attack):
    """Two of nine entries; one size in each row."""
    for client in (TopK(Gradient(), ratio=0.25), RandomMask(Gradient(), ratio=0.25), Sign(Gradient())):
        rule = Seeing()
        run = FederatedModule(world.model(), client)
        training.fit(training.trainer([rule, attack], 2), run, training.data(Federation(6, 2, "replacement")))
        if isinstance(client, Sign):
            assert (rule.rows.abs().max(1).values - rule.rows.abs().min(1).values).abs().max() < 1e-6
            assert (rule.rows != 0).all()
        else:
            assert (rule.rows != 0).sum(1).tolist() == [2] * 6


@pytest.mark.parametrize("kind", [Private, RandomMask, Sign, TopK])
def test_the_server_s_own_clients_send_nothing(kind):
    """So there is nothing to compress, and nobody to protect."""
    data = world.samples(2)
    batch = ClientBatch(data, [torch.arange(3)] * 2, [-1, -2])
    found = kind(Gradient()).updates(world.model(), batch, Round(0, 0.1, 0)).updates
    assert torch.equal(found, Gradient().updates(world.model(), batch, Round(0, 0.1, 0)).updates)


def test_without_momentum_only_the_momentum_is_missing():
    client = TopK(Momentum(0.5, "zero"), ratio=0.25)
    other = client.without_momentum()
    assert (client.client.remembers, other.client.remembers) == (True, False)
    assert isinstance(other, TopK)
    assert other.ratio == 0.25


def test_what_a_wrapped_client_promises_is_promised():
    inner = Private(Gradient(), noise_multiplier=0.0)
    inner.delta = 0.1
    assert TopK(inner).privacy(3) == {"epsilon": torch.inf, "delta": 0.1, "uploads": 3}
    assert TopK(Gradient()).privacy(3) is None
