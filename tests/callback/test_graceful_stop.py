"""Ctrl-C and SIGTERM end a run between two rounds."""

import signal
import threading

import pytest
import pytorch_lightning as pl
import torch

from lightning_fl.aggregator.average import Average
from lightning_fl.callback.graceful_stop import GracefulStop
from lightning_fl.callback.record import Record
from tests import training


class Interrupting(Average):
    """Plain averaging; in one round these signals come."""

    def __init__(self, at, *signals):
        self.at, self.signals = at, signals or (signal.SIGINT,)

    def aggregate(self, updates, server):
        if server.round.index == self.at - 1:
            for number in self.signals:
                signal.raise_signal(number)
        return super().aggregate(updates, server)


@pytest.fixture(autouse=True)
def handler():
    """Handlers of our own, to see whether they come back."""
    before = signal.getsignal(signal.SIGTERM)
    with training.interrupts():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, ours)
        yield
    signal.signal(signal.SIGTERM, before)


def given_back():
    return all(signal.getsignal(number) is ours for number in (signal.SIGINT, signal.SIGTERM))


def ours(signum, frame):
    raise KeyboardInterrupt("ours")


def test_without_ctrl_c_nothing_changes():
    trainer = training.trainer([GracefulStop()], rounds=3)
    training.fit(trainer)
    assert trainer.global_step == 3
    assert given_back()


@pytest.mark.parametrize("at", [1, 2, 3, 5])  # every second round is evaluated
@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_the_round_is_finished_and_the_run_goes_on_from_there(number, name, at, tmp_path, capsys):
    record, stop = Record(tmp_path / "first"), GracefulStop()
    trainer = training.trainer([stop, record, Interrupting(at, number)], rounds=7)
    training.fit(trainer)
    assert stop.received == name
    assert trainer.global_step == at
    assert [row["round"] for row in record.metrics.rows] == list(range(1, at + 1))
    assert f"{name}: stopping after this round" in capsys.readouterr().err
    assert given_back()
    trainer.save_checkpoint(tmp_path / "stopped.ckpt")

    resumed = training.fit(training.trainer([Average()], rounds=7), ckpt_path=tmp_path / "stopped.ckpt")
    whole = training.fit(training.trainer([Average()], rounds=7))
    assert torch.equal(resumed.model.weight, whole.model.weight)
    assert torch.equal(resumed.model.bias, whole.model.bias)


@pytest.mark.parametrize(
    ("signals", "code"),
    [
        ((signal.SIGINT, signal.SIGINT), 130),
        ((signal.SIGTERM, signal.SIGTERM), 143),
        ((signal.SIGTERM, signal.SIGINT), 130),
    ],
)
def test_the_second_signal_stops_at_once(signals, code, tmp_path):
    record = Record(tmp_path)
    trainer = training.trainer([GracefulStop(), record, Interrupting(3, *signals)], rounds=7)
    with pytest.raises(SystemExit) as stopped:
        training.fit(trainer)
    assert stopped.value.code == code
    assert [row["round"] for row in record.metrics.rows] == [1, 2]
    assert given_back()


def test_sigterm_just_before_the_first_round(tmp_path):
    class Early(pl.Callback):
        def on_sanity_check_start(self, *_):
            signal.raise_signal(signal.SIGTERM)

    record = Record(tmp_path)
    trainer = training.trainer([Early(), GracefulStop(), record], rounds=3, num_sanity_val_steps=1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with pytest.raises(SystemExit) as stopped:
        training.fit(trainer)
    assert stopped.value.code == 143
    assert record.metrics.rows == []


def test_an_error_gives_ctrl_c_back():
    class Broken(Average):
        def aggregate(self, updates, server):
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        training.fit(training.trainer([GracefulStop(), Broken()], rounds=2))
    assert given_back()


def test_other_threads_leave_ctrl_c_alone():
    stop = GracefulStop()
    trainer, module = training.trainer(), training.module()
    thread = threading.Thread(target=stop.on_train_start, args=(trainer, module))
    thread.start()
    thread.join()
    assert given_back()
