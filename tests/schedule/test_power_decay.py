"""Rates that fall as a power of the round, as the papers write them."""

import math

import pytest
import torch
from torch.optim import SGD

from lightning_fl import SettingError
from lightning_fl.contract import conf
from lightning_fl.schedule.power_decay import power_decay


@pytest.mark.parametrize(
    ("name", "eta", "first", "rate"),
    [
        ("inverse_sqrt", 3.0, 1, lambda k: 3 / k**0.5),  # the FRPG paper's benchmarks, k from 1
        ("raga", 3 / 5, 1, lambda t: 3 / (5 * (0.2 * t + 1) ** 0.5)),  # RAGA, K = 3, t from 1
        ("fed_nga_theory", 0.7, 0, lambda t: 0.7 / (t + 1) ** (1 / 2 + 0.1)),  # Fed-NGA, delta = 0.1, t from 0
    ],
)
def test_rates_of_the_papers(name, eta, first, rate):
    optimizer = SGD([torch.nn.Parameter(torch.zeros(1))], lr=eta)
    schedule = conf.make("schedule", name)(optimizer)
    for k in range(first, first + 200):
        assert optimizer.param_groups[0]["lr"] == pytest.approx(rate(k))
        optimizer.step()
        schedule.step()


def test_ragas_rate_for_vgg16():
    # 4e-2 K / sqrt(t + 100), t from 1, as conf/schedule/raga.yaml says it: lr 0.004 K, shift 1.01, rate 0.01.
    rate = power_decay(1.01, 0.01, 0.5)
    assert [0.004 * rate(t - 1) for t in (1, 50)] == pytest.approx([4e-2 / 101**0.5, 4e-2 / 150**0.5])


def test_constants():
    assert [power_decay(1.0, 0.0, 0.5)(k) for k in (0, 9)] == [1.0, 1.0]
    assert [power_decay(3.0, 2.0, 0.0)(k) for k in (0, 9)] == [1.0, 1.0]


@pytest.mark.parametrize(
    "settings", [(0.0, 1.0, 0.5), (1.0, -1.0, 0.5), (1.0, 1.0, -0.5), (math.nan, 1.0, 1.0), (1.0, math.inf, 1.0)]
)
def test_settings_out_of_range(settings):
    with pytest.raises(SettingError, match=r"power_decay needs (a finite )?(shift|rate|exponent)"):
        power_decay(*settings)
