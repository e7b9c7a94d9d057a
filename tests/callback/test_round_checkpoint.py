"""Checkpoints are whole and hold their round's evaluation."""

import csv
import pickle
from contextlib import ExitStack

import pytest
import torch

from lightning_fl import DataError
from lightning_fl.aggregator.average import Average
from lightning_fl.callback.record import Record
from lightning_fl.callback.round_checkpoint import RoundCheckpoint, WholeFiles
from tests import training
from tests.callback.test_record import Crash, Diverging
from tests.test_files import room


def rows(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return [(row["round"], row["accuracy"], row["loss"]) for row in csv.DictReader(file)]


def fit(folder, *more, every=2, rounds=7, **settings):
    callbacks = [RoundCheckpoint(folder / "last.ckpt", every), Record(folder), *more]
    return training.fit(training.trainer(callbacks, rounds=rounds, enable_checkpointing=True), **settings)


def saved(path):
    return torch.load(path, weights_only=True)


def test_a_killed_run_goes_on_with_the_evaluations_of_a_whole_one(tmp_path):
    whole = fit(tmp_path / "whole")
    with pytest.raises(RuntimeError, match="killed"):
        fit(tmp_path / "killed", Crash(5, RuntimeError("killed")))
    assert saved(tmp_path / "killed/last.ckpt")["global_step"] == 4
    resumed = fit(tmp_path / "resumed", ckpt_path=tmp_path / "killed/last.ckpt")
    assert [accuracy != "" for _, accuracy, _ in rows(tmp_path / "whole")] == 3 * [False, True] + [False]
    assert rows(tmp_path / "resumed") == rows(tmp_path / "whole")
    for ours, theirs in zip(resumed.parameters(), whole.parameters(), strict=True):
        assert torch.equal(ours, theirs)


class Watch(Average):
    """Plain averaging that notes what the last checkpoint holds when a round begins and when it is evaluated."""

    def __init__(self, path):
        self.path, self.seen = path, {}

    def aggregate(self, updates, server):
        self.seen[server.round.index] = self._round()
        return super().aggregate(updates, server)

    def on_validation_start(self, trainer, module):
        self.seen[f"evaluation of {trainer.global_step}"] = self._round()

    def _round(self):
        if not self.path.exists():
            return None
        state = saved(self.path)
        last = state["callbacks"]["Record"]["metrics"]["last"]
        assert last["round"] == state["global_step"]
        return state["global_step"], "accuracy" in last


def test_a_round_that_is_evaluated_is_saved_after_that_alone(tmp_path):
    """Rounds 3 and 9 are saved at once, 6 with its evaluation; 2, 4, 8 are evaluated and not saved."""
    watch = Watch(tmp_path / "last.ckpt")
    fit(tmp_path, watch, every=3, rounds=10)
    assert watch.seen["evaluation of 6"] == (3, False)
    begun = [watch.seen[index] for index in range(10)]
    assert begun == [None] * 3 + [(3, False)] * 3 + [(6, True)] * 3 + [(9, False)]


def test_saves_without_evaluations(tmp_path):
    trainer = training.trainer(
        [RoundCheckpoint(tmp_path / "last.ckpt", 3)], rounds=5, limit_val_batches=0, enable_checkpointing=True
    )
    training.fit(trainer)
    assert saved(tmp_path / "last.ckpt")["global_step"] == 3


def test_a_sanity_check_is_no_round(tmp_path):
    checkpoint = RoundCheckpoint(tmp_path / "last.ckpt", 9)
    training.fit(training.trainer([checkpoint], rounds=2, num_sanity_val_steps=1, enable_checkpointing=True))
    assert not (tmp_path / "last.ckpt").exists()


def test_a_diverged_round_does_not_replace_the_checkpoint(tmp_path):
    assert fit(tmp_path, Diverging(), every=3).diverged  # in round 4
    assert saved(tmp_path / "last.ckpt")["loops"]["fit_loop"]["epoch_loop.batch_progress"]["total"]["ready"] == 3


def test_a_disk_that_fills_up_leaves_the_checkpoint_before(tmp_path):
    class Full(Average):
        def aggregate(self, updates, server):
            if server.round.index == 3:
                limits.enter_context(room(2000))
            return super().aggregate(updates, server)

    whole = fit(tmp_path / "whole")
    with ExitStack() as limits, pytest.raises(DataError, match=r"last.ckpt cannot be written: File too large; fix"):
        fit(tmp_path / "full", Full())
    assert saved(tmp_path / "full/last.ckpt")["global_step"] == 2
    assert sorted(path.name for path in (tmp_path / "full").iterdir()) == ["last.ckpt", "metrics.csv", "weights.csv"]
    resumed = fit(tmp_path / "full", ckpt_path=tmp_path / "full/last.ckpt")
    assert rows(tmp_path / "full") == rows(tmp_path / "whole")
    assert torch.equal(resumed.model.weight, whole.model.weight)


def test_a_folder_that_cannot_be_made_ends_the_run(tmp_path):
    (tmp_path / "taken").write_text("")
    checkpoint = RoundCheckpoint(tmp_path / "taken/last.ckpt", 1)
    with pytest.raises(DataError, match=r"taken/last.ckpt cannot be written: "):
        training.fit(training.trainer([checkpoint], rounds=2, enable_checkpointing=True))


def test_the_plugin_of_a_user_stays(tmp_path):
    class Mine(WholeFiles):
        pass

    trainer = training.trainer(
        [RoundCheckpoint(tmp_path / "last.ckpt", 1)], rounds=1, enable_checkpointing=True, plugins=[Mine()]
    )
    training.fit(trainer)
    assert type(trainer.strategy.checkpoint_io) is Mine


class Command:
    """What an attacker puts into a pickle."""

    def __reduce__(self):
        return eval, ("1 / 0",)


DAMAGES = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "zeroed": lambda content: bytes(len(content)),
    "text": lambda content: b"round,loss\n1,0.5\n",
    "pickle": lambda content: pickle.dumps({"state_dict": 1}),
    "code": lambda content: pickle.dumps(Command()),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_named_in_one_line(tmp_path, damage):
    fit(tmp_path)
    path = tmp_path / "last.ckpt"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError) as error:
        fit(tmp_path, ckpt_path=path)
    assert str(error.value) == (
        f"{path} cannot be read: it is empty, cut, changed or not a file of torch.save; put a copy in its place, or "
        f"move it away to begin again."
    )


def test_what_could_run_is_not_read(tmp_path):
    fit(tmp_path)
    path = tmp_path / "last.ckpt"
    torch.save(saved(path) | {"more": Command()}, path)
    with pytest.raises(DataError, match="it holds more than tensors and plain Python values"):
        fit(tmp_path, ckpt_path=path)


@pytest.mark.parametrize("content", [{"state_dict": {}}, [1, 2], torch.ones(3)], ids=["part", "list", "tensor"])
def test_another_file_of_torch_is_no_checkpoint(tmp_path, content):
    path = tmp_path / "last.ckpt"
    torch.save(content, path)
    with pytest.raises(DataError, match="it holds something else than a run's checkpoint"):
        fit(tmp_path, ckpt_path=path)


def test_a_checkpoint_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"nowhere cannot be read: No such file"):
        WholeFiles().load_checkpoint(tmp_path / "nowhere")
