"""A rate that falls where the loss no longer does."""

import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.schedule.reduce_on_plateau import reduce_on_plateau


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.8)


def test_the_rate_is_halved_after_two_rounds_without_improvement():
    made = optimizer()
    schedule, rates = reduce_on_plateau(made, factor=0.5, patience=1, threshold=0.1, min_lr=0.3), []
    for loss in (1.0, 0.8, 0.79, 0.78, 0.5, 0.5, 0.5, 0.5, 0.5):  # 0.79 and 0.78 are within a tenth of 0.8
        schedule.step(loss)
        rates.append(made.param_groups[0]["lr"])
    assert rates == [0.8, 0.8, 0.8, 0.4, 0.4, 0.4, 0.3, 0.3, 0.3]


@pytest.mark.parametrize(
    "wrong", [{"factor": 1.0}, {"factor": float("nan")}, {"patience": -1}, {"threshold": 1.0}, {"min_lr": float("inf")}]
)
def test_settings_out_of_range(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        reduce_on_plateau(optimizer(), **wrong)
