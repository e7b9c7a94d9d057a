"""MLflow's own database holds what a run logs."""

import json
import sqlite3
from contextlib import closing
from importlib.util import find_spec

import pytest

from tests.commands.test_train import start


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mlflow") is None, reason="needs mlflow")
def test_a_run_in_mlflow(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    process = start(tmp_path, "trainer.max_steps=3", "logger=mlflow", "hydra.run.dir=x")
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out
    accuracy = json.loads((tmp_path / "x/summary.json").read_text())["accuracy"]
    with closing(sqlite3.connect(tmp_path / "x/mlflow.db")) as database:

        def rows(query):
            return database.execute(query).fetchall()

        assert rows("select status from runs") == [("FINISHED",)]
        assert rows("select step from metrics where key = 'loss' order by step") == [(1,), (2,), (3,)]
        assert rows("select value from metrics where key = 'final/accuracy'") == [(pytest.approx(accuracy),)]
        assert rows("select value from params where key = 'seed'") == [("0",)]
