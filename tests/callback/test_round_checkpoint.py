"""Checkpoints that hold their round's evaluation."""

import csv

import pytest
import torch

from lightning_fl.callback.record import Record
from lightning_fl.callback.round_checkpoint import RoundCheckpoint
from tests import training
from tests.callback.test_record import Crash


def rows(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return [(row["round"], row["accuracy"], row["loss"]) for row in csv.DictReader(file)]


def fit(folder, *more, **settings):
    callbacks = [RoundCheckpoint(folder / "last.ckpt", 2), Record(folder), *more]
    return training.fit(training.trainer(callbacks, rounds=7, enable_checkpointing=True), **settings)


def test_a_killed_run_goes_on_with_the_evaluations_of_a_whole_one(tmp_path):
    whole = fit(tmp_path / "whole")
    with pytest.raises(RuntimeError, match="killed"):
        fit(tmp_path / "killed", Crash(5, RuntimeError("killed")))
    assert torch.load(tmp_path / "killed/last.ckpt", weights_only=False)["global_step"] == 4
    resumed = fit(tmp_path / "resumed", ckpt_path=tmp_path / "killed/last.ckpt")
    assert [accuracy != "" for _, accuracy, _ in rows(tmp_path / "whole")] == 3 * [False, True] + [False]
    assert rows(tmp_path / "resumed") == rows(tmp_path / "whole")
    for ours, theirs in zip(resumed.parameters(), whole.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_saves_without_evaluations(tmp_path):
    trainer = training.trainer(
        [RoundCheckpoint(tmp_path / "last.ckpt", 3)], rounds=5, limit_val_batches=0, enable_checkpointing=True
    )
    training.fit(trainer)
    assert torch.load(tmp_path / "last.ckpt", weights_only=False)["global_step"] == 3
