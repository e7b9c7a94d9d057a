"""BOBA's rate: constant, then a factor every few rounds."""

import pytest
import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR

from lightning_fl import SettingError
from lightning_fl.schedule.late_decay import late_decay


def rates(rounds, eta, **settings):
    """The rate that each round uses, from round 1, as torch's scheduler sets it."""
    optimizer = SGD([torch.nn.Parameter(torch.zeros(1))], lr=eta)
    schedule = LambdaLR(optimizer, late_decay(**settings))
    used = []
    for _ in range(rounds):
        used.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return used


def slow_rates(rounds, eta, start, interval, factor):
    """After round t (from 1): if t >= T_s and t mod T_i = 0 then eta <- alpha eta."""
    used = []
    for t in range(1, rounds + 1):
        used.append(eta)
        if t >= start and t % interval == 0:
            eta *= factor
    return used


def test_the_papers_mnist_rates():
    used = rates(200, 0.1, start=100, interval=10, factor=0.95)
    assert used[:100] == pytest.approx([0.1] * 100)  # rounds 1 to 100
    for step in range(1, 11):  # rounds 101-110, ..., 191-200
        assert used[90 + 10 * step : 100 + 10 * step] == pytest.approx([0.1 * 0.95**step] * 10)
    assert used[-1] == pytest.approx(0.0599, abs=5e-5)
    assert sum(used) == pytest.approx(17.6, abs=0.05)


@pytest.mark.parametrize("start", [1, 2, 5, 9, 10, 11, 20, 25, 1000])
@pytest.mark.parametrize("interval", [1, 3, 10, 7])
def test_any_start_and_interval(start, interval):
    settings = {"start": start, "interval": interval, "factor": 0.5}
    assert rates(60, 2.0, **settings) == pytest.approx(slow_rates(60, 2.0, **settings))


def test_factor_one_is_constant():
    assert rates(30, 0.3, start=1, interval=1, factor=1.0) == [0.3] * 30


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ((0, 10, 0.9), "start >= 1, got 0"),
        ((10, 0, 0.9), "interval >= 1, got 0"),
        ((10, 10, 0.0), "0 < factor <= 1, got 0.0"),
        ((10, 10, 1.1), "0 < factor <= 1, got 1.1"),
    ],
)
def test_settings_out_of_range(settings, message):
    with pytest.raises(SettingError, match=f"late_decay needs {message}"):
        late_decay(*settings)
