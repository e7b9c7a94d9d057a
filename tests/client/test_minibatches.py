"""How clients draw their mini-batches."""

import pytest
import torch

from lightning_fl import ClientBatch, Round, SettingError
from lightning_fl.client.base import minibatches
from lightning_fl.client.frpg import Frpg
from lightning_fl.client.gradient import Gradient
from lightning_fl.client.local_sgd import LocalSgd
from lightning_fl.client.momentum import Momentum
from lightning_fl.client.rsa import Rsa
from lightning_fl.contract import world

SIZES = [5, 8, 1, 10]


def clients(ids=range(4)):
    """Clients that hold 5, 8, 1 and 10 samples."""
    parts = torch.arange(24).split(SIZES)
    return ClientBatch(world.samples(8), [parts[i] for i in ids], ids)


def drawn(index, steps=1, size=3, seed=0, ids=range(4), sampling="epoch"):
    """For each step and client the samples drawn in a round."""
    batches = minibatches(clients(ids), size, Round(index, 0.1, seed), steps, sampling)
    return [[indices.tolist() for indices in batch.indices] for batch in batches]


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_every_sample_once_an_epoch(steps):
    rounds = 12
    for i, (size, start) in enumerate(zip(SIZES, [0, 5, 13, 14], strict=True)):
        draws = [step[i] for t in range(rounds) for step in drawn(t, steps)]
        a_epoch = -(-size // 3)
        for first in range(0, len(draws) - a_epoch + 1, a_epoch):
            epoch = draws[first : first + a_epoch]
            assert [len(batch) for batch in epoch[:-1]] == [3] * (a_epoch - 1)
            assert len(epoch[-1]) == (size - 1) % 3 + 1
            assert sorted(x for batch in epoch for x in batch) == list(range(start, start + size))


def test_every_epoch_has_its_own_order():
    """Client 3 has epochs of 4 mini-batches; the same order twice has a chance of 1 in 10!."""
    orders = [[x for t in range(4) for x in drawn(4 * epoch + t)[0][3]] for epoch in range(5)]
    assert len(set(map(tuple, orders))) == 5


def test_draws_depend_on_seed_round_and_client_alone():
    everybody = drawn(5, steps=2)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    assert drawn(5, steps=2) == everybody
    assert torch.equal(torch.get_rng_state(), state)
    assert drawn(5, steps=2, ids=[3, 1]) == [[step[3], step[1]] for step in everybody]
    assert drawn(5, steps=2, seed=1) != everybody
    assert drawn(6, steps=2) != everybody


def test_anew_draws_are_as_they_always_were():
    """Literals from before there were epochs: measured results depend on them."""
    assert drawn(2, steps=2, sampling=None) == [
        [[0, 2, 4], [10, 6, 5], [13], [20, 14, 15]],
        [[1, 3, 4], [12, 7, 8], [13], [16, 20, 14]],
    ]


@pytest.mark.parametrize("sampling", [None, "epoch"])
def test_all_samples_where_no_size_is_given(sampling):
    batches = minibatches(clients(), None, Round(2, 0.1, 0), 3, sampling)
    assert [batch.sizes for batch in batches] == [SIZES] * 3


def test_clients_pass_their_sampling_on():
    batch = clients()
    for t in range(3):
        (one,) = minibatches(batch, 3, Round(t, 0.1, 0), sampling="epoch")
        ours = Gradient(3, sampling="epoch").updates(world.model(), batch, Round(t, 0.1, 0)).updates
        assert torch.equal(ours, Gradient().updates(world.model(), one, Round(t, 0.1, 0)).updates)
        first, second = minibatches(batch, 3, Round(t, 0.1, 0), 2, "epoch")
        local = LocalSgd(2, "difference", batch_size=3, sampling="epoch")
        ours = local.updates(world.model(), batch, Round(t, 0.1, 0)).updates
        g = Gradient().updates(world.model(), first, Round(t, 0.1, 0)).updates
        at = torch.cat([p.detach().flatten() for p in world.model().parameters()]) - 0.1 * g
        torch.testing.assert_close(ours, g + Gradient().gradients(world.model(), second, at=at).updates)


@pytest.mark.parametrize(
    "make",
    [
        lambda **settings: Rsa(0.5, "huber", 0.1, 0.0, **settings),
        lambda **settings: Frpg(0.5, 0.1, 0.01, 2.0, slots=1, **settings),
        lambda **settings: Momentum(0.9, "first", steps=1, upload="difference", **settings),
    ],
    ids=["rsa", "frpg", "momentum"],
)
def test_clients_with_memory_pass_it_on_too(make):
    batch, drawing, given = clients(), make(batch_size=3, sampling="epoch"), make(batch_size=None)
    for client in (drawing, given):
        client.prepare(world.model(), batch)
    for t in range(3):
        (one,) = minibatches(batch, 3, Round(t, 0.1, 0), sampling="epoch")
        ours = drawing.updates(world.model(), batch, Round(t, 0.1, 0)).updates
        assert torch.equal(ours, given.updates(world.model(), one, Round(t, 0.1, 0)).updates)


def test_unknown_sampling():
    with pytest.raises(SettingError, match=r"gradient's sampling must be one of epoch, got 'replacement'"):
        Gradient(3, sampling="replacement")
