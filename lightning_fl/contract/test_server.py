"""Laws of every server in conf/server, found by looking there."""

import copy

import pytest
import torch
from torch.optim import Optimizer

from lightning_fl.contract import conf, world
from lightning_fl.contract.device import PretendedDevice

EVERY = pytest.mark.parametrize("name", conf.names("server"))


def made(name):
    """A model and its server's optimizer, as conf has it."""
    model = world.model()
    return model, conf.make("server", name)(model.parameters())


def step(model, optimizer, seed):
    """One round with a drawn update; gives the parameters after it."""
    draw = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=draw).to(parameter.device)
    optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@EVERY
def test_it_is_an_optimizer_of_all_parameters(name):
    model, optimizer = made(name)
    assert isinstance(optimizer, Optimizer)
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    assert {id(parameter) for parameter in held} == {id(parameter) for parameter in model.parameters()}
    assert all(group["lr"] > 0 for group in optimizer.param_groups)


@EVERY
def test_it_subtracts_what_it_is_given(name):
    """From zero and with no memory yet, a step goes against the update in every coordinate, and stays finite."""
    model, optimizer = made(name)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    after = step(model, optimizer, 1)
    update = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    assert after.isfinite().all()
    assert (after * update < 0).all()


@EVERY
def test_same_updates_same_bits_whatever_the_global_state(name):
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        model, optimizer = made(name)
        found.append([step(model, optimizer, t) for t in range(3)])
        assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@EVERY
def test_its_memory_goes_on_from_a_checkpoint(name):
    model, optimizer = made(name)
    for t in range(2):
        step(model, optimizer, t)
    later, again = made(name)
    later.load_state_dict(model.state_dict())
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for t in (2, 3):
        assert torch.equal(step(model, optimizer, t), step(later, again, t))


@EVERY
def test_steps_on_a_gpu_are_those_on_the_cpu(name):
    """One that is pretended, with its laws; nobody waits for it."""
    model, optimizer = made(name)
    expected = [step(model, optimizer, t) for t in range(3)]
    with PretendedDevice() as gpu:
        model = world.model().to(gpu.device)
        optimizer = conf.make("server", name)(model.parameters())
        found = [step(model, optimizer, t) for t in range(3)]
        assert gpu.waits == []
        for a, b in zip(found, expected, strict=True):
            assert a.device == gpu.device
            torch.testing.assert_close(a.cpu(), b)


@EVERY
def test_updates_are_left_alone(name):
    """A rule's result may be needed after the step."""
    model, optimizer = made(name)
    step(model, optimizer, 0)
    draw = torch.Generator().manual_seed(1)
    given = [torch.randn(parameter.shape, generator=draw) for parameter in model.parameters()]
    for parameter, update in zip(model.parameters(), given, strict=True):
        parameter.grad = update.clone()
    kept = [parameter.grad for parameter in model.parameters()]
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(kept, given, strict=True))
