"""A run that is killed, wherever, and goes on, leaves what one leaves that was never stopped."""

import os
import shutil
from functools import partial
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from torch.optim import SGD

from lightning_fl import FederatedModule, Federation
from lightning_fl.adversary.gaussian import Gaussian
from lightning_fl.callback.record import Record
from lightning_fl.callback.round_checkpoint import RoundCheckpoint
from lightning_fl.client.saga import Saga
from lightning_fl.contract import world
from tests import training
from tests.callback.test_record import timeless

ROUNDS, SAVED = 7, 3  # every second round is evaluated


class Moments(pl.Callback):
    """Copy a run's folder at each of its moments: what is on the disk then is what a kill would leave.

    Moments are when a file is opened, half written, safe on the disk or replaced, and when a round, an evaluation or
    the end begins or is over.

    Args:
        folder: The run's.
        copies: Where copies go, numbered from 1; one that equals the last one is not kept.
    """

    def __init__(self, folder, copies, monkeypatch):
        self.folder, self.copies, self.passed, self.last = folder, copies, 0, None
        monkeypatch.setattr(os, "fsync", self.before(os.fsync))
        monkeypatch.setattr(Path, "replace", self.before(Path.replace, self.here))
        monkeypatch.setattr(Path, "open", self.halting(Path.open))

    def here(self, *_):
        self.passed += 1
        left = {path: path.read_bytes() if path.is_file() else None for path in self.folder.rglob("*")}
        if left != self.last:
            self.last = left
            shutil.copytree(self.folder, self.copies / str(self.passed))

    on_train_batch_start = on_validation_start = on_validation_end = on_train_end = on_test_end = here

    def before(self, function, then=lambda: None):
        def watched(*arguments):
            self.here()
            result = function(*arguments)
            then()
            return result

        return watched

    def halting(self, function):
        def watched(path, mode="r", *arguments, **settings):
            file = function(path, mode, *arguments, **settings)
            return Halting(file, self.here) if mode in ("wb", "ab") else file

        return watched


class Halting:
    """A file with a moment when it is open, and one when half of its content is written."""

    def __init__(self, file, here):
        self.file, self.here = file, here

    def __enter__(self):
        self.here()
        return self

    def __exit__(self, *_):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, content):
        half = len(content) // 2
        self.file.write(content[:half])
        self.file.flush()
        self.here()
        self.file.write(content[half:])


def train(folder, *callbacks):
    """Train, from the checkpoint if there is one."""
    path = folder / "checkpoints" / "last.ckpt"
    callbacks = [Gaussian(1.0, "updates"), Record(folder), RoundCheckpoint(path, SAVED), *callbacks]
    trainer = training.trainer(callbacks, ROUNDS, enable_checkpointing=True)
    module = FederatedModule(world.model(), Saga(2, 1.0), partial(SGD, lr=0.1, momentum=0.9))
    data = training.data(Federation(4, 1, "replacement", "uniform"))
    training.fit(trainer, module, data, path if path.exists() else None)
    trainer.save_checkpoint(path)
    training.evaluate(trainer, module, data)


@pytest.mark.slow
def test_a_kill_at_any_moment_changes_nothing(tmp_path, monkeypatch):
    whole = tmp_path / "whole"
    whole.mkdir()
    with monkeypatch.context() as patch:
        moments = Moments(whole, tmp_path / "killed", patch)
        train(whole, moments)
    assert moments.passed > 60
    folders = sorted((tmp_path / "killed").iterdir(), key=lambda path: int(path.name))
    assert len(folders) > 40
    expected = torch.load(whole / "checkpoints/last.ckpt", weights_only=True)
    rows = timeless(whole)
    assert [row["accuracy"] != "" for row in rows] == 3 * [False, True] + [True]
    for folder in folders:
        train(folder)
        assert timeless(folder) == rows, folder
        assert list(timeless(folder)[0]) == list(rows[0]), folder
        assert (folder / "weights.csv").read_bytes() == (whole / "weights.csv").read_bytes(), folder
        state = torch.load(folder / "checkpoints/last.ckpt", weights_only=True)
        assert state["global_step"] == expected["global_step"] == 7
        for name, value in expected["state_dict"].items():
            assert torch.equal(state["state_dict"][name], value), (folder, name)
        assert sorted(os.listdir(folder)) == sorted(os.listdir(whole)), folder
        assert os.listdir(folder / "checkpoints") == ["last.ckpt"], folder
