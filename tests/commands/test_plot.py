"""scripts/plot.py as a user types it, on runs of train.py and on folders of runs."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from lightning_fl import plot
from lightning_fl.commands import plot as script
from lightning_fl.commands import train
from lightning_fl.contract import conf
from lightning_fl.run.config import default_settings
from tests import saved

SMALL = [
    *("data=synthetic", "data.features=6", "data.n_train=240", "data.n_test=30", "data.classes=3"),
    *("data.server_samples=4", "model.in_features=6", "model.hidden=[5]", "model.n_classes=3", "partition=iid"),
    *("federation.n_clients=10", "federation.n_byzantine=2", "f=3", "trainer.max_steps=3"),
]
QUIET = ["trainer.enable_progress_bar=false", "trainer.accelerator=cpu", "logger=none"]


@pytest.fixture
def command(typed):
    return partial(typed, script.main, "plot.py")


@pytest.mark.drawn
def test_two_runs_of_train(command, typed, tmp_path):
    several = ["-m", "aggregator=boba,median", "reference=run", "hydra.sweep.dir=many"]
    assert typed(train.main, "train.py", *SMALL, *QUIET, *several)[0] == 0
    one = tmp_path / "many/0"
    summary = json.loads((one / "summary.json").read_text())
    confusion = np.array(summary["confusion"])
    assert confusion.sum() == 30
    np.testing.assert_allclose(confusion.diagonal() / confusion.sum(1), summary["recall"], atol=1e-6)
    assert confusion.trace() / 30 == pytest.approx(summary["accuracy"], abs=1e-6)
    assert summary["byzantine_clients"] == [10, 11]
    drops = np.array(summary["reference_recall"]) - summary["recall"]
    assert max(0, drops.max()) == pytest.approx(summary["mrd"], abs=1e-5)

    at_the_end = (one / "report.html").read_text()
    assert "<tr><td>aggregator</td><td>boba: f=3, " in at_the_end
    code, out, err = command("many/0")
    assert (code, err) == (0, "")
    names = [
        "recall.png",
        "drop.png",
        "confusion.png",
        "robustness.png",
        "detection.png",
        "weights.png",
        "clients.png",
        "labels.png",
        "report.html",
    ]
    assert out.splitlines() == [f"many/0/{name}" for name in names]
    assert (one / "report.html").read_text() == at_the_end

    code, out, _ = command("many", "--out", "both")
    assert code == 0
    names = ["accuracy.png", "recall.png", "drop.png", "weights.png", "report.html"]
    assert out.splitlines() == [f"both/{name}" for name in names]
    text = (tmp_path / "both/report.html").read_text()
    assert "boba: completed after 3 rounds." in text
    assert "median: completed after 3 rounds." in text


def test_several_folders_go_to_a_place_of_their_own(command, tmp_path):
    saved.run(tmp_path / "a")
    saved.run(tmp_path / "b", saved.changed(saved.CONFIG, aggregator=None))
    assert command("a", "b")[0] == 0
    assert "average: completed" in (tmp_path / "runs/compared/report.html").read_text()


def test_a_run_of_a_folder_that_has_not_ended_is_left_out(command, tmp_path):
    saved.run(tmp_path / "runs" / "a")
    saved.run(tmp_path / "runs" / "b", saved.changed(saved.CONFIG, aggregator=None))
    (saved.run(tmp_path / "runs" / "c", saved.changed(saved.CONFIG, seed=1)) / "summary.json").unlink()
    code, _, err = command("runs")
    assert code == 0
    assert "Not finished, left out: runs/c" in err
    assert "2 runs compared" in (tmp_path / "runs/compared/report.html").read_text()
    code, _, err = command("runs/a", "runs/c")
    assert code == 2
    assert "summary.json is not there" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "Error: nowhere is not a folder"),
        (["empty"], "Error: no run found in empty; a run's folder holds config.yaml."),
        (["a", "--aut", "b"], "unrecognized arguments: --aut"),
        ([], "required: RUN"),
    ],
)
def test_errors(command, tmp_path, arguments, message):
    saved.run(tmp_path / "a")
    (tmp_path / "empty").mkdir()
    code, _, err = command(*arguments)
    assert code == 2
    assert message in err


def table(monkeypatch):
    """What the partition's picture is made of."""
    drawn = {}

    def keep(counts, byzantine, title, names):
        drawn.update(counts=counts, byzantine=list(byzantine), title=title)
        return figure(counts, byzantine, title, names)

    figure = plot.partition
    monkeypatch.setattr(plot, "partition", keep)
    return drawn


def test_partition_of_pairs(command, tmp_path, monkeypatch):
    drawn = table(monkeypatch)
    code, out, err = command("partition", "data.n_train=200", "data=synthetic", "--out", "pairs.png", "data.features=2")
    assert (code, out, err) == (0, "pairs.png\n", "")
    assert (tmp_path / "pairs.png").read_bytes()[:4] == b"\x89PNG"
    # 200 samples, 20 of each of 10 classes; client 10 i + j holds a shard of class i and one of class j.
    expected = np.zeros((100, 10), int)
    for client in range(100):
        expected[client, client // 10] += 1
        expected[client, client % 10] += 1
    np.testing.assert_array_equal(drawn["counts"], expected)
    assert drawn["byzantine"] == list(range(100, 115))
    assert drawn["title"].splitlines() == [
        "synthetic, pathological, 15 Byzantine",
        "200 samples; 100 clients hold data; server: 20 of each class",
    ]


def test_partition_with_chosen_attackers(command, tmp_path, monkeypatch):
    drawn = table(monkeypatch)
    chosen = ["federation.byzantine=replacement", "federation.which=[3,7]", "data.server_samples=0"]
    code, out, _ = command("partition", *SMALL, *chosen, "partition=dirichlet", "--out", str(tmp_path / "x"))
    assert (code, out) == (0, f"{tmp_path}/x/partition.png\n")
    assert np.array(drawn["counts"]).sum(0).tolist() == [80, 80, 80]
    assert drawn["byzantine"] == [3, 7]
    assert drawn["title"].endswith("server: none of each class")


def test_partition_without_attack(command, tmp_path, monkeypatch):
    drawn = table(monkeypatch)
    assert command("partition", *SMALL, "+adversary=none")[:2] == (0, "runs/partition.png\n")
    assert drawn["byzantine"] == []
    assert drawn["title"].startswith("synthetic, iid, no attack\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["partitio=iid"], "there is no setting partitio; did you mean partition"),
        (["partition=idd"], "there is no partition idd; did you mean iid"),
        (["partition=dirichlet", "partition.alpha=low"], "partition.alpha needs a number, got 'low'"),
        (["--out", "x.gif"], "--out needs a folder or a file .png, .pdf or .svg, got x.gif"),
        (["partition=step", "federation.n_clients=7"], "needs a multiple of c^2 = 100 clients"),
        (["federation.byzantine=replaced"], "got 'replaced'"),
    ],
)
def test_errors_of_partitions(command, tmp_path, arguments, message):
    code, out, err = command("partition", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("Error: ")
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_defaults_are_what_conf_says():
    defaults = default_settings()
    assert defaults["trainer"]["max_steps"] == conf.compose().trainer.max_steps
    assert defaults["adversary"]["_target_"].endswith("Ipm")
    assert Path(defaults["reference_dir"]) == Path("runs/references")
