"""What loggers are told, and that a resumed run is one run to them."""

import json

import pytest
import pytorch_lightning as pl
from pytorch_lightning.loggers.logger import DummyLogger

from lightning_fl.contract import conf
from lightning_fl.run import loggers

STUB = "logger.mine._target_=tests.run.test_loggers."


class MLFlowLogger(DummyLogger):
    """Named like Lightning's, and starts a run unless it is told one."""

    started, experiment = 0, None

    def __init__(self, run_id=None):
        super().__init__()
        MLFlowLogger.started += run_id is None
        self._id, self.told, self.closed = run_id or f"r{MLFlowLogger.started}", {}, None

    version = property(lambda self: self._id)

    def log_hyperparams(self, params):
        self.told = params

    def log_metrics(self, metrics, step=None):
        self.results = metrics

    def finalize(self, status):
        self.closed = status


def compose(folder, *more):
    return conf.compose(f"run_dir={folder}", "logger=none", f"+{STUB}MLFlowLogger", *more)


def attached(config, start=None):
    """The logger of a run, after the run."""
    trainer = object.__new__(pl.Trainer)
    with loggers.attached(trainer, config, "1.2+gabc", start):
        (logger,) = trainer.loggers
        assert logger.closed is None
    return logger


def test_a_resumed_run_is_the_same_run(tmp_path):
    config = compose(tmp_path)
    first, other = attached(config), attached(compose(tmp_path / "other"))
    assert first.version != other.version
    last = tmp_path / "checkpoints" / "last.ckpt"
    assert attached(config, last).version == first.version
    assert json.loads((tmp_path / "loggers.json").read_text()) == {"mine": first.version}
    assert attached(compose(tmp_path, "+logger.mine.run_id=own"), last).version == "own"  # a user's choice
    copied = tmp_path / "elsewhere" / "copied.ckpt"
    assert attached(compose(tmp_path / "third"), copied).version not in (first.version, other.version)


def test_a_run_that_fails_is_closed_as_failed(tmp_path):
    trainer = object.__new__(pl.Trainer)

    with pytest.raises(RuntimeError), loggers.attached(trainer, compose(tmp_path), ""):
        raise RuntimeError("no luck")
    assert trainer.loggers[0].closed == "failed"
    assert attached(compose(tmp_path)).closed == "success"


def test_settings_have_names_and_a_version_and_no_paths(tmp_path):
    told = attached(compose(tmp_path, "method=raga", "adversary=sign_flip", "data=mnist", f"data_dir={tmp_path}")).told
    chosen = {"rule": "geometric_median", "attack": "sign_flip", "method": "raga"}
    assert chosen.items() <= told["names"].items()
    assert told["version"] == "1.2+gabc"
    assert told["aggregator"]["_target_"].endswith("GeometricMedian")
    assert str(tmp_path) not in json.dumps(told)


def test_results_are_those_that_people_sort_by(tmp_path):
    logger = MLFlowLogger()
    summary = {"accuracy": 0.5, "validation_accuracy": None, "mrd": 0.25, "recall": [0.75, None, 0.125]}
    rows = [{"round": 1}, {"round": 2, "accuracy": 0.75}, {"round": 4, "accuracy": 0.5}]
    loggers.results([logger], summary | {"robustness": {"mean": 2.0}, "attack": {"success_rate": 0.1}}, rows)
    assert logger.results == {
        "final/accuracy": 0.5,
        "final/mrd": 0.25,
        "final/best_accuracy": 0.75,
        "final/worst_recall": 0.125,
        "final/kappa": 2.0,
        "final/attack/success_rate": 0.1,
    }
