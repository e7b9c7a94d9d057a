"""Laws of every schedule in conf/schedule, found by looking there."""

import math

import pytest
import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import LRScheduler

from lightning_fl.checks import step
from lightning_fl.contract import conf

# conf has nothing to instantiate for a rate that stays as it is.
NAMES = [name for name in conf.names("schedule") if conf.compose(f"schedule={name}").get("schedule")]
EVERY = pytest.mark.parametrize("name", NAMES)
RATE = 0.1


def made(name):
    """A schedule as conf has it, of an optimizer at `RATE`."""
    optimizer = SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    return optimizer, conf.make("schedule", name)(optimizer)


def rates(name, rounds):
    """The rate of each round; the loss never falls."""
    optimizer, schedule = made(name)
    found = []
    for _ in range(rounds):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        step(schedule, 1.0)
    return found


@EVERY
def test_it_is_a_schedule(name):
    assert isinstance(made(name)[1], LRScheduler)


@EVERY
def test_rates_are_positive_and_finite_for_long(name):
    assert all(0 < rate < math.inf for rate in rates(name, 3000))


@EVERY
def test_it_goes_on_from_a_checkpoint(name):
    whole = rates(name, 300)
    optimizer, schedule = made(name)
    for _ in range(120):
        optimizer.step()
        step(schedule, 1.0)
    later, again = made(name)
    again.load_state_dict(schedule.state_dict())
    later.load_state_dict(optimizer.state_dict())
    for expected in whole[120:]:
        assert later.param_groups[0]["lr"] == expected
        later.step()
        step(again, 1.0)
