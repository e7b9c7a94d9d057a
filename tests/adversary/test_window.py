"""Attacks that begin and end: outside of their rounds Byzantine clients are honest."""

import pytest
import torch

from lightning_fl import Federation, SettingError
from lightning_fl.adversary.ipm import Ipm
from lightning_fl.contract import world
from lightning_fl.samples import ClientBatch
from tests import training


@pytest.mark.parametrize(
    ("window", "attacked"),
    [
        ({"from_round": 3, "to_round": 5}, [3, 4, 5]),
        ({}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({"from_round": 4, "to_round": 4}, [4]),
        ({"from_round": 1, "every": 3}, [1, 4, 7]),
    ],
)
def test_rounds_count_from_0_and_both_ends_are_attacked(window, attacked):
    assert [index for index in range(8) if Ipm(**window).attacks_in(index)] == attacked


def fit(attack, rounds=6):
    """Train five clients of which the last attacks."""
    data = training.data(Federation(5, 1, "replacement"))
    return training.fit(training.trainer([attack], rounds), data_=data).model


def test_a_run_is_what_a_loop_does():
    """Plain averaging at a rate of 0.1 against -10 times the honest mean in rounds 2 and 4 alone."""
    attack = Ipm(10.0, from_round=2, to_round=5, every=2)
    model = fit(attack, rounds=7)
    data, expected = training.data(Federation(5, 1, "replacement")), world.model()
    data.setup()
    clients = ClientBatch(data.train, data.clients.indices, range(5))
    for index in range(7):
        rows, _ = world.slow_gradients(expected, clients)
        if index in (2, 4):
            rows[4] = -10 * rows[:4].mean(0)
        with torch.no_grad():
            for parameter, step in zip(expected.parameters(), rows.mean(0).split([6, 3]), strict=True):
                parameter -= 0.1 * step.view_as(parameter)
    for parameter, other in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(parameter.data, other.data, rtol=1e-5, atol=1e-6)


def test_an_impossible_window_is_refused_before_training():
    with pytest.raises(SettingError, match="ipm needs to_round >= from_round, got 2 and 3; change one"):
        Ipm(from_round=3, to_round=2)
    with pytest.raises(SettingError, match="ipm needs a from_round among the run's 6 rounds, from 0, got 6; lower it"):
        fit(Ipm(from_round=6))


@pytest.mark.parametrize("window", [{"from_round": 1}, {"to_round": 1}, {"every": 2}])
def test_who_has_no_data_cannot_be_honest(window):
    for given, refused in [(None, True), ("iid", False), ("copies", False)]:
        federation, trainer = Federation(4, 1, byzantine_data=given), training.trainer([Ipm(**window)], 2)
        if refused:
            with pytest.raises(
                SettingError, match="needs Byzantine clients with data, to be honest in the other rounds"
            ):
                training.fit(trainer, data_=training.data(federation))
        else:
            training.fit(trainer, data_=training.data(federation))
