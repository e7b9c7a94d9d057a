"""Ctrl-C ends a run between two rounds."""

import signal
import threading

import pytest
import torch

from lightning_fl.aggregator.average import Average
from lightning_fl.callback.graceful_stop import GracefulStop
from lightning_fl.callback.record import Record
from tests import training


class Interrupting(Average):
    """Plain averaging; in one round the user presses Ctrl-C so many times."""

    def __init__(self, at, times=1):
        self.at, self.times = at, times

    def aggregate(self, updates, server):
        if server.round.index == self.at - 1:
            for _ in range(self.times):
                signal.raise_signal(signal.SIGINT)
        return super().aggregate(updates, server)


@pytest.fixture(autouse=True)
def handler():
    """A handler of our own, to see whether it comes back."""
    with training.interrupts():
        signal.signal(signal.SIGINT, ours)
        yield


def ours(signum, frame):
    raise KeyboardInterrupt("ours")


def test_without_ctrl_c_nothing_changes():
    trainer = training.trainer([GracefulStop()], rounds=3)
    training.fit(trainer)
    assert trainer.global_step == 3
    assert signal.getsignal(signal.SIGINT) is ours


@pytest.mark.parametrize("at", [1, 2, 3, 5])  # every second round is evaluated
def test_the_round_is_finished_and_the_run_goes_on_from_there(at, tmp_path, capsys):
    record = Record(tmp_path / "first")
    trainer = training.trainer([GracefulStop(), record, Interrupting(at)], rounds=7)
    training.fit(trainer)
    assert trainer.global_step == at
    assert [row["round"] for row in record.metrics.rows] == list(range(1, at + 1))
    assert "Stopping after this round" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is ours
    trainer.save_checkpoint(tmp_path / "stopped.ckpt")

    resumed = training.fit(training.trainer([Average()], rounds=7), ckpt_path=tmp_path / "stopped.ckpt")
    whole = training.fit(training.trainer([Average()], rounds=7))
    assert torch.equal(resumed.model.weight, whole.model.weight)
    assert torch.equal(resumed.model.bias, whole.model.bias)


def test_the_second_ctrl_c_stops_at_once(tmp_path):
    record = Record(tmp_path)
    trainer = training.trainer([GracefulStop(), record, Interrupting(3, times=2)], rounds=7)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        training.fit(trainer)
    assert [row["round"] for row in record.metrics.rows] == [1, 2]


def test_an_error_gives_ctrl_c_back():
    class Broken(Average):
        def aggregate(self, updates, server):
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        training.fit(training.trainer([GracefulStop(), Broken()], rounds=2))
    assert signal.getsignal(signal.SIGINT) is ours


def test_other_threads_leave_ctrl_c_alone():
    stop = GracefulStop()
    trainer, module = training.trainer(), training.module()
    thread = threading.Thread(target=stop.on_train_start, args=(trainer, module))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGINT) is ours
    stop.on_fit_end(trainer, module)
    assert signal.getsignal(signal.SIGINT) is ours
