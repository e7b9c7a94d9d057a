"""FedAdagrad, FedAdam and FedYogi against algorithm 2, number by number."""

import copy
from math import sqrt

import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.contract import conf
from lightning_fl.server.fedopt import FedAdagrad, FedAdam, FedYogi
from tests import training

KINDS = {"fedadagrad": FedAdagrad, "fedadam": FedAdam, "fedyogi": FedYogi}
EVERY = pytest.mark.parametrize("name", KINDS)


def slow(name, start, updates, lr=0.1, beta_1=0.9, beta_2=0.99, tau=1e-3):
    """The parameter after each round: alg. 2 on one coordinate, with Delta = -update and v_{-1} = tau^2."""
    w, m, v, seen = start, 0.0, tau**2, []
    for update in updates:
        delta = -update
        m = beta_1 * m + (1 - beta_1) * delta
        square = delta * delta
        if name == "fedadagrad":
            v = v + square
        elif name == "fedadam":
            v = beta_2 * v + (1 - beta_2) * square
        else:
            sign = (v > square) - (v < square)
            v = v - (1 - beta_2) * square * sign
        w = w + lr * m / (sqrt(v) + tau)
        seen.append(w)
    return seen


def fast(name, start, updates, **settings):
    """The same through the optimizer, for several coordinates and two parameters."""
    weights = [torch.nn.Parameter(part.clone()) for part in start.split(2)]
    optimizer = conf.make("server", name, **settings)(weights)
    seen = []
    for update in updates:
        for weight, part in zip(weights, update.split(2), strict=True):
            weight.grad = part.clone()
        optimizer.step()
        assert all(torch.equal(w.grad, part) for w, part in zip(weights, update.split(2), strict=True))
        seen.append(torch.cat([weight.detach() for weight in weights]))
    return torch.stack(seen)


@EVERY
@pytest.mark.parametrize("settings", [{}, {"lr": 1.0, "beta_1": 0.5, "tau": 0.1}, {"beta_1": 0.0, "tau": 2.0}])
def test_agrees_with_algorithm_2(name, settings, draw):
    start = torch.randn(5, generator=draw, dtype=torch.float64)
    updates = torch.randn(40, 5, generator=draw, dtype=torch.float64)
    known = {"beta_1": 0.0} if name == "fedadagrad" else {}
    columns = [slow(name, start[j].item(), updates[:, j].tolist(), **(known | settings)) for j in range(5)]
    expected = torch.tensor(columns, dtype=torch.float64).T
    torch.testing.assert_close(fast(name, start, updates, **settings), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "first"),
    [
        # v = 1 + 1e-6; not 1e-6 (v before the update), not m / (1 - beta_1) (bias correction: -0.1 / 1.001).
        ("fedadagrad", -0.1 * 0.1 / (sqrt(1 + 1e-6) + 1e-3)),
        # v = 0.99e-6 + 0.01
        ("fedadam", -0.1 * 0.1 / (sqrt(0.01 + 0.99e-6) + 1e-3)),
        # v = 1e-6 + 0.01: v below the square grows
        ("fedyogi", -0.1 * 0.1 / (sqrt(0.01 + 1e-6) + 1e-3)),
    ],
)
def test_the_first_step_by_hand(name, first):
    steps = fast(name, torch.zeros(1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64), beta_1=0.9)
    assert steps.item() == pytest.approx(first, rel=1e-12)


def test_they_differ_once_updates_shrink():
    """After 1 and 2, the update .5 is small: Adam's v falls by a hundredth of it all, Yogi's by 0.0025."""
    updates = torch.tensor([[1.0], [2.0], [0.5]], dtype=torch.float64)
    steps = {name: fast(name, torch.zeros(1).double(), updates, beta_1=0.9)[:, 0].tolist() for name in KINDS}
    m = [0.1, 0.29, 0.311]
    v_adam = [0.01 + 0.99e-6, 0.0499 + 0.9801e-6, 0.051901 + 0.970299e-6]
    v_yogi = [0.01 + 1e-6, 0.05 + 1e-6, 0.0525 + 1e-6]  # .05 is below .25, so v grows; above it, it would shrink
    v_adagrad = [1 + 1e-6, 5 + 1e-6, 5.25 + 1e-6]
    for name, v in [("fedadam", v_adam), ("fedyogi", v_yogi), ("fedadagrad", v_adagrad)]:
        expected = [-0.1 * sum(a / (sqrt(b) + 1e-3) for a, b in zip(m[:k], v[:k], strict=True)) for k in (1, 2, 3)]
        assert steps[name] == pytest.approx(expected, rel=1e-9)


def test_yogi_shrinks_by_the_square_itself():
    """v = 4 from a start at tau = 2; an update of 1 takes 0.01 away, where Adam's would take 0.03."""
    steps = fast("fedyogi", torch.zeros(1).double(), torch.ones(1, 1).double(), beta_1=0.0, tau=2.0)
    assert steps.item() == pytest.approx(-0.1 / (sqrt(3.99) + 2))


@EVERY
def test_a_schedule_governs_its_rate(name):
    w = torch.nn.Parameter(torch.zeros(1))
    optimizer = conf.make("server", name)([w])
    schedule = conf.make("schedule", "late_decay")(optimizer)
    w.grad = torch.ones(1)
    for _ in range(111):
        optimizer.step()
        schedule.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.95**2)


@EVERY
def test_trains(name):
    run = training.module()
    run.make_optimizer = conf.make("server", name)
    training.fit(training.trainer(rounds=30), run)
    assert run.evaluation["accuracy"] > 0.8


@EVERY
def test_config_and_class_agree(name):
    config = conf.compose(f"server={name}").server
    assert config._target_ == f"lightning_fl.server.fedopt.{KINDS[name].__name__}"
    values = {"lr": 0.1, "beta_1": 0.9, "beta_2": 0.99, "tau": 1e-3}
    if name == "fedadagrad":
        values = {"lr": 0.1, "beta_1": 0.0, "tau": 1e-3}
    assert {key: config[key] for key in config if key[0] != "_"} == values


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("lr", 0.0, r"needs lr > 0, got 0.0"),
        ("beta_1", 1.0, r"needs 0 <= beta_1 < 1, got 1.0"),
        ("beta_1", -0.1, r"needs 0 <= beta_1 < 1, got -0.1"),
        ("beta_2", 1.0, r"needs 0 <= beta_2 < 1, got 1.0"),
        ("beta_2", float("nan"), r"needs a finite 0 <= beta_2 < 1, got nan"),
        ("tau", 0.0, r"needs tau > 0, got 0.0"),
        ("lr", float("inf"), r"needs a finite lr > 0, got inf"),
    ],
)
def test_settings_out_of_range(setting, value, message):
    for name in ("fedadam", "fedyogi") if setting == "beta_2" else KINDS:
        make = conf.make("server", name, **{setting: value})
        with pytest.raises(SettingError, match=message):
            make([torch.nn.Parameter(torch.zeros(1))])


@pytest.mark.parametrize("name", KINDS)
def test_a_square_beyond_float32_is_not_the_end(name):
    """1e20 squared is inf in float32; what is finite when it comes leaves finite parameters for good."""
    w = torch.nn.Parameter(torch.zeros(1))
    server = conf.make("server", name)([w])
    for gradient in (1e20, 1e20, 1.0, -1.0):
        w.grad = torch.tensor([gradient])
        server.step()
        assert w.isfinite()


@EVERY
def test_a_round_for_which_nobody_was_drawn_changes_nothing(name):
    weights = [torch.nn.Parameter(torch.ones(2))]
    optimizer = conf.make("server", name)(weights)
    for gradient in (torch.ones(2), None, torch.ones(2)):
        before = copy.deepcopy([weights, optimizer.state_dict()])
        weights[0].grad = gradient
        optimizer.step()
        same = str(before) == str([weights, optimizer.state_dict()])
        assert same == (gradient is None)
