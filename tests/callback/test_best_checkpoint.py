"""The model of the best evaluation goes along into another folder."""

import torch

from lightning_fl.callback.best_checkpoint import BestCheckpoint
from tests import training


class Judged(BestCheckpoint):
    """Takes the accuracies of some rounds from a list."""

    accuracies = (0.1, 0.5, 0.3, 0.4)

    def _monitor_candidates(self, trainer):
        found = super()._monitor_candidates(trainer)
        return found | {"accuracy": torch.tensor(self.accuracies[trainer.global_step - 1])}


def fit(folder, rounds, start=None):
    best = Judged(folder / "checkpoints", "best", monitor="accuracy", mode="max", enable_version_counter=False)
    trainer = training.trainer([best], rounds=rounds, val_check_interval=1, enable_checkpointing=True)
    training.fit(trainer, ckpt_path=start)
    trainer.save_checkpoint(folder / "last.ckpt")
    return best


def test_a_run_that_goes_on_elsewhere_takes_the_best_along(tmp_path):
    fit(tmp_path / "a", 2)
    before = (tmp_path / "a/checkpoints/best.ckpt").read_bytes()
    best = fit(tmp_path / "b", 4, tmp_path / "a/last.ckpt")
    assert best.best_model_score == 0.5
    assert best.best_model_path == str(tmp_path / "b/checkpoints/best.ckpt")
    for folder in ("a", "b"):
        assert [path.name for path in (tmp_path / folder / "checkpoints").iterdir()] == ["best.ckpt"]
        assert (tmp_path / folder / "checkpoints/best.ckpt").read_bytes() == before


def test_without_the_file_it_begins_anew(tmp_path):
    fit(tmp_path / "a", 2)
    (tmp_path / "a/checkpoints/best.ckpt").unlink()
    assert fit(tmp_path / "b", 4, tmp_path / "a/last.ckpt").best_model_score == 0.4


def test_a_folder_that_was_moved_has_its_best_model(tmp_path):
    fit(tmp_path / "a", 2)
    (tmp_path / "a").rename(tmp_path / "b")
    assert fit(tmp_path / "b", 4, tmp_path / "b/last.ckpt").best_model_score == 0.5
