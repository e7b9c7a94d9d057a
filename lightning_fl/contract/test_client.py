"""Laws of every client in conf/client, found by looking there."""

from dataclasses import replace

import pytest
import torch
from hydra.utils import get_class

from lightning_fl import SettingError
from lightning_fl.client.base import Client
from lightning_fl.contract import conf, world
from lightning_fl.contract.device import PretendedDevice
from lightning_fl.round import Round
from lightning_fl.samples import ClientBatch

EVERY = pytest.mark.parametrize("name", conf.names("client"))
SHAPE = (5, world.D)


def model(dtype=torch.float32):
    return world.model().to(dtype)


def clients(dtype=torch.float32, ids=range(5)):
    """Five clients of 2 to 8 samples."""
    data = world.samples(10)
    data = replace(data, inputs=data.inputs.to(dtype))
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))
    parts = order.split([8, 2, 5, 3, 6, 6])
    return ClientBatch(data, [parts[i] for i in ids], list(ids))


def prepared(name, dtype=torch.float32, **settings):
    client = conf.make("client", name, **{"batch_size": 2, "steps": 3, **settings})
    client.prepare(model(dtype), clients(dtype))
    return client


def rounds(client, dtype=torch.float32, out=None, count=3, seed=0, batch=None):
    """The results of some rounds at one model, each with ``out`` if it is given."""
    batch = batch or clients(dtype)
    results = []
    for t in range(count):
        result = client.updates(model(dtype), batch, Round(t, 0.1, seed), **({} if out is None else {"out": out}))
        results.append(replace(result, updates=result.updates.clone()))
    return results


def alike(first, second):
    return all(
        torch.equal(a.updates, b.updates)
        and torch.equal(a.losses, b.losses)
        and a.sample_gradients == b.sample_gradients
        for a, b in zip(first, second, strict=True)
    )


@EVERY
def test_config_and_class_agree(name):
    config = conf.compose(f"client={name}").client
    kind = get_class(config._target_)
    assert issubclass(kind, Client)
    assert not (said := conf.unlike("client", name, kind)), said


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("chunk", [1, 2])
def test_one_finite_update_and_loss_per_client(name, chunk, dtype):
    for result in rounds(prepared(name, dtype, client_chunk=chunk), dtype):
        assert result.updates.shape == SHAPE
        assert result.losses.shape == SHAPE[:1]
        assert result.updates.dtype == result.losses.dtype == dtype
        assert result.updates.isfinite().all()
        assert result.losses.isfinite().all()
        assert not result.updates.requires_grad
        assert not result.losses.requires_grad
        assert result.sample_gradients > 0


@EVERY
@pytest.mark.parametrize("garbage", [float("nan"), 1e30])
def test_memory_to_write_into_changes_nothing(name, garbage):
    """Nor does what it held, such as memory that nobody has written yet."""
    whole = torch.full((SHAPE[0] + 2, SHAPE[1]), garbage)
    client = prepared(name)
    assert alike(rounds(client, out=whole[1:-1]), rounds(prepared(name)))
    last = client.updates(model(), clients(), Round(3, 0.1, 0), out=whole[1:-1]).updates
    assert last.data_ptr() == whole[1].data_ptr()  # no copy
    torch.testing.assert_close(whole[[0, -1]], torch.full((2, SHAPE[1]), garbage), rtol=0, atol=0, equal_nan=True)


@EVERY
def test_same_seed_same_bits_whatever_the_global_state(name):
    torch.manual_seed(1)
    first = rounds(prepared(name))
    torch.manual_seed(2)
    before = torch.get_rng_state()
    assert alike(rounds(prepared(name)), first)
    assert torch.equal(torch.get_rng_state(), before)


@EVERY
@pytest.mark.parametrize("other", [Round(0, 0.1, 1), Round(5, 0.1, 0)], ids=["seed", "round"])
def test_mini_batches_follow_the_seed_and_the_round(name, other):
    if "batch_size" not in conf.compose(f"client={name}").client:
        pytest.skip("it draws no mini-batches")
    here, there = (prepared(name).updates(model(), clients(), which) for which in (Round(0, 0.1, 0), other))
    assert not torch.equal(here.losses, there.losses)


@EVERY
def test_arguments_stay_as_they_are(name):
    client, net, batch = prepared(name), model(), clients()
    parts, inputs = [part.clone() for part in batch.indices], batch.samples.inputs.clone()
    client.updates(net, batch, Round(0, 0.1, 0))
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), world.model().parameters(), strict=True))
    assert all(p.grad is None and p.requires_grad for p in net.parameters())
    assert all(torch.equal(part, kept) for part, kept in zip(batch.indices, parts, strict=True))
    assert torch.equal(batch.samples.inputs, inputs)
    assert batch.ids == list(range(5))


@EVERY
@pytest.mark.parametrize("ids", [[2], [4, 0, 3], [1, 2, 3, 4, 0]])
def test_a_client_does_the_same_in_any_company_and_order(name, ids):
    """Clients are known by number, not by row; alone and in a chunk only rounding differs."""
    whole = rounds(prepared(name))
    some = rounds(prepared(name), batch=clients(ids=ids))
    for together, apart in zip(whole, some, strict=True):
        torch.testing.assert_close(apart.updates, together.updates[ids], rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(apart.losses, together.losses[ids], rtol=1e-5, atol=1e-6)


@EVERY
def test_who_is_absent_keeps_the_memory_it_has(name):
    """Whatever outlives a round has one row per client, and only who takes part writes there."""
    client = prepared(name)
    rounds(client, count=1)
    before = {key: value.clone() for key, value in client.state_dict().items()}
    client.updates(world.model(seed=1), clients(ids=[1, 3]), Round(1, 0.1, 0))
    changed = torch.zeros(5, dtype=torch.bool)
    for key, value in client.state_dict().items():
        assert len(value) == 5, key
        changed |= (value != before[key]).flatten(1).any(1)
    assert changed.tolist() == [False, bool(before), False, bool(before), False]


@EVERY
def test_its_memory_goes_on_from_a_checkpoint(name):
    whole = rounds(prepared(name), count=4)
    client, later = prepared(name), prepared(name)
    rounds(client, count=2)
    later.load_state_dict({key: value.clone() for key, value in client.state_dict().items()})
    after = [later.updates(model(), clients(), Round(t, 0.1, 0)) for t in (2, 3)]
    assert alike(after, whole[2:])


@EVERY
@pytest.mark.parametrize("chunk", [None, 1, 2])
def test_stays_on_the_gpu_where_the_model_is(name, chunk):
    """One that is pretended, with its laws; three rounds there are those on the CPU up to rounding."""
    expected = rounds(prepared(name, client_chunk=chunk))
    with PretendedDevice() as gpu:
        net, batch = model().to(gpu.device), world.moved(clients(), gpu.device)
        client = conf.make("client", name, batch_size=2, steps=3, client_chunk=chunk)
        client.prepare(net, batch)
        for t, result in enumerate(expected):
            before = len(gpu.waits)
            found = client.updates(net, batch, Round(t, 0.1, 0))
            assert not t or not gpu.waits[before:]  # the first time, it tries out how to compute
            assert found.updates.device == found.losses.device == gpu.device
            torch.testing.assert_close(found.updates.cpu(), result.updates, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(found.losses.cpu(), result.losses, rtol=1e-4, atol=1e-5)


@EVERY
def test_a_result_is_not_what_it_remembers(name):
    """A server may write into the updates."""
    client, twin = prepared(name), prepared(name)
    client.updates(model(), clients(), Round(0, 0.1, 0)).updates.fill_(torch.nan)
    twin.updates(model(), clients(), Round(0, 0.1, 0))
    assert all(torch.equal(value, twin.state_dict()[key]) for key, value in client.state_dict().items())


@EVERY
def test_a_virtual_client_of_the_server_is_served_or_refused(name):
    """With a finite update, without a trace in what the clients have; or by one line."""
    client, batch = prepared(name), clients(ids=[0])
    before = {key: value.clone() for key, value in client.state_dict().items()}
    virtual = ClientBatch(batch.samples, batch.indices, [-1])
    refused = None
    try:
        assert client.updates(model(), virtual, Round(0, 0.1, 0)).updates.isfinite().all()
    except SettingError as error:
        refused = str(error)
    assert client.serves_server == (refused is None)
    assert refused is None or (before and "got client -1 of the server; rules that let the server train" in refused)
    assert all(torch.equal(value, before[key]) for key, value in client.state_dict().items())
