"""TensorBoard's own files hold what a run logs."""

import json

import pytest

from tests.commands.test_train import start

reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


@pytest.mark.slow
def test_a_run_in_tensorboard(tmp_path):
    process = start(tmp_path, "trainer.max_steps=3", "logger=tensorboard", "hydra.run.dir=x")
    _, err = process.communicate()
    assert process.returncode == 0, err
    events = reader.EventAccumulator(str(tmp_path / "x/tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [1, 2, 3]
    (final,) = events.Scalars("final/accuracy")
    assert final.value == pytest.approx(json.loads((tmp_path / "x/summary.json").read_text())["accuracy"])
