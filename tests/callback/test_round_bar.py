"""Round, loss, accuracy and time left."""

import re

import pytest
import pytorch_lightning as pl

from lightning_fl.callback.round_bar import RoundBar
from tests import training


class Watch(pl.Callback):
    """Notes what the bar says when training starts and after each round."""

    def __init__(self, bar):
        self.bar, self.states = bar, []

    def _note(self):
        bar = self.bar.train_progress_bar
        self.states.append((bar.initial, bar.n, bar.total))

    def on_train_epoch_start(self, *_):
        self._note()

    def on_train_batch_end(self, *_):
        self._note()


def run(rounds, refresh_rate=1, **settings):
    bar = RoundBar(refresh_rate=refresh_rate)
    watch = Watch(bar)
    trainer = training.trainer([bar, watch], rounds=rounds, enable_progress_bar=True)
    module = training.fit(trainer, **settings)
    # Lightning calls progress bars after the other callbacks: what is seen lies a round back.
    return trainer, module, watch


def shown(text):
    """The bar's states, as they were drawn one over the other."""
    return [part for part in re.split(r"[\r\n]+", text) if "Round" in part]


def test_it_counts_rounds(capsys):
    trainer, _, _ = run(5)
    drawn = shown(capsys.readouterr().out)
    assert any(" 0/5 " in part for part in drawn)
    assert " 5/5 " in drawn[-1]
    assert "loss=0.4" in drawn[-1]  # four digits of the honest clients' mean loss
    assert "accuracy=100.0%" in drawn[-1]
    assert trainer.progress_bar_callback.train_progress_bar.n == 5


def test_time_left_is_shown(capsys):
    run(3)
    assert re.search(r"\d/3 \[\d\d:\d\d<", capsys.readouterr().out)


def test_evaluation_has_no_bar_of_its_own(capsys):
    trainer, module, _ = run(4)
    training.evaluate(trainer, module)
    captured = capsys.readouterr()
    assert not re.search("Valid|Test", captured.out + captured.err)


def test_a_resumed_run_starts_where_it_stopped(tmp_path, capsys):
    trainer, _, _ = run(3)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    capsys.readouterr()
    trainer, _, watch = run(8, ckpt_path=tmp_path / "half.ckpt")
    drawn = shown(capsys.readouterr().out)
    assert not any(re.search(r" [012]/8 ", part) for part in drawn)
    assert any(" 3/8 " in part for part in drawn)
    assert " 8/8 " in drawn[-1]
    # Time left comes from the rounds of this run alone.
    assert {initial for initial, _, _ in watch.states} == {3}
    assert all(total == 8 and 3 <= n <= 8 for _, n, total in watch.states)


@pytest.mark.parametrize(("refresh_rate", "counts"), [(2, {0, 2, 4, 5}), (3, {0, 3, 5})])
def test_it_may_move_less_often(refresh_rate, counts, capsys):
    run(5, refresh_rate=refresh_rate)
    assert {int(n) for n in re.findall(r" (\d)/5 ", capsys.readouterr().out)} == counts


def test_a_disabled_bar_says_nothing(capsys):
    run(3, refresh_rate=0)
    assert "Round" not in capsys.readouterr().out


def test_the_first_round_shows_its_loss(capsys):
    run(5)
    assert any("loss=" in part for part in shown(capsys.readouterr().out) if " 1/5 " in part)
