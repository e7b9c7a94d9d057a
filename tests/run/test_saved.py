"""Runs read back from their folders, and what tells them apart."""

import pytest

from lightning_fl import DataError
from lightning_fl.run.page import write
from lightning_fl.run.saved import SavedRun, labels, trust_shares
from tests import saved

AVERAGE = {"_target_": "lightning_fl.aggregator.average.Average"}
KRUM = {"_target_": "lightning_fl.aggregator.krum.Krum", "f": 1}
MIMIC = {"_target_": "lightning_fl.adversary.mimic.Mimic", "target": 0}


def test_reads_what_was_written(tmp_path):
    run = SavedRun.read(saved.run(tmp_path))
    assert run.config == saved.CONFIG
    assert run.metrics == saved.METRICS
    assert run.weights == saved.WEIGHTS
    assert run.summary == saved.SUMMARY
    assert (run.status, run.diverged, run.byzantine, run.reference) == ("completed", False, [3, 4], [0.9, 0.75])
    assert run.topics == ["boba", "2 ipm", "mnist_5k"]
    first = {"round": 0, "accuracy": 0.5, "recall/0": 0.0, "recall/1": 1.0}
    assert run.evaluations == [first, saved.METRICS[1]]


def test_a_summary_of_another_version(tmp_path):
    """What is missing is None, at each level; what is not known is left out."""
    newer = saved.SUMMARY | {"schema": 9, "energy": 3.5}
    newer["communication"] = saved.SUMMARY["communication"] | {"floats_across": 7}
    run = SavedRun.read(saved.run(tmp_path / "newer", summary=newer))
    assert run.summary == saved.SUMMARY | {"schema": 9}
    last = {"accuracy": 0.75, "recall": [1.0, 0.5]}
    older = {"status": "completed", "rounds": 2, "last_evaluation": last, "mean_weight": None}
    run = SavedRun.read(saved.run(tmp_path / "older", summary=older))
    assert set(run.summary) == set(saved.SUMMARY)
    assert run.summary["last_evaluation"] == last | {
        "round": None,
        "mrd": None,
        "attack": None,
        "validation_accuracy": None,
        "client_accuracy": None,
    }
    assert run.summary["mean_weight"] == {"honest": None, "byzantine": None}
    assert run.evaluations == saved.METRICS[1:]
    assert run.summary["schema"] is run.summary["version"] is run.summary["seconds"] is None
    assert (run.status, run.byzantine, run.reference) == ("completed", [], None)
    assert trust_shares(run.summary) is None


def test_a_report_of_runs_of_several_versions(tmp_path):
    older = {"status": "completed", "rounds": 2, "accuracy": 0.5}
    runs = [SavedRun.read(saved.run(tmp_path / name, summary=of)) for name, of in [("a", saved.SUMMARY), ("b", older)]]
    write(runs, tmp_path)
    write(runs[1:], tmp_path)
    assert "not recorded" in (tmp_path / "report.html").read_text()


def test_a_run_of_a_rule_that_is_no_weighting(tmp_path):
    rows = [{"round": 1, "loss": 0.5}]
    assert SavedRun.read(saved.run(tmp_path, metrics=rows, weights=None)).weights == []


def test_a_run_that_diverged_at_once_has_no_rows(tmp_path):
    summary = saved.SUMMARY | saved.DIVERGED | {"rounds": 0}
    run = SavedRun.read(saved.run(tmp_path, metrics=None, weights=None, summary=summary))
    assert run.diverged
    assert run.metrics == run.weights == []


def damage(name, content):
    def write(folder):
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content)

    return write


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (damage("config.yaml", None), r"config.yaml is not there; give the folder of a finished run"),
        (damage("config.yaml", b"a: [1"), r"config.yaml cannot be read: "),
        (damage("config.yaml", b"\xff\xfe\xff"), r"config.yaml cannot be read: "),
        (damage("config.yaml", b"[1, 2]"), r"config.yaml needs named settings, got list"),
        (damage("summary.json", None), r"summary.json is not there \(a run writes it when it ends\)"),
        (damage("summary.json", b'{"status": '), r"summary.json cannot be read: "),
        (damage("summary.json", b'{"status": "completed"}'), r"summary.json has no rounds; is it a run's"),
        (damage("summary.json", b'{"rounds": 3}'), r"summary.json has no status; is it a run's"),
        (damage("metrics.csv", None), r"metrics.csv is not there"),
        (damage("metrics.csv", b""), r"metrics.csv needs a column round, got no columns"),
        (damage("metrics.csv", b"loss\n1\n"), r"metrics.csv needs a column round, got loss"),
        (damage("metrics.csv", b"round,loss\n1,0.5\n2,hm\n"), r"metrics.csv, line 3: could not convert .*'hm'"),
        (damage("metrics.csv", b"round,loss\n1,0.5\nx,0.5\n"), r"metrics.csv, line 3: .*'x'"),
        (damage("metrics.csv", b"round,loss\n1,0.5\n2\n"), r"metrics.csv, line 3: needs as many values as columns"),
        (damage("metrics.csv", b"round,loss\n1,0.5,7\n"), r"metrics.csv, line 2: needs as many values as columns"),
        (damage("metrics.csv", b"round,loss\n\xff,0.5\n"), r"metrics.csv cannot be read: "),
        (damage("weights.csv", None), r"weights.csv is not there"),
        (damage("weights.csv", b"round,0\n1,"), None),
    ],
)
def test_a_missing_or_broken_file_is_named(tmp_path, spoil, message):
    folder = saved.run(tmp_path / "run")
    spoil(folder)
    if message is None:
        assert SavedRun.read(folder).weights == [{"round": 1}]
        return
    with pytest.raises(DataError, match=message) as error:
        SavedRun.read(folder)
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_folder_that_is_not_there():
    with pytest.raises(DataError, match="nowhere is not a folder; give the folder of a run"):
        SavedRun.read("nowhere")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([{}, {"aggregator": AVERAGE}], ["boba", "average"]),
        ([{}, {"aggregator": None}], ["boba", "average"]),
        ([{"adversary": {}, "federation__n_byzantine": 0}, {}], ["no attack", "ipm"]),
        ([{}, {"aggregator": AVERAGE, "adversary": MIMIC}], ["boba, ipm", "average, mimic"]),
        ([{}, {"aggregator__p_min": -1.0}, {"aggregator": AVERAGE}], ["boba, p_min=-0.5", "boba, p_min=-1", "average"]),
        ([{"f": 2, "aggregator__f": 2}, {}], ["f=2", "f=1"]),
        ([{"seed": 3, "data__seed": 3, "data__partition_seed": 3, "federation__seed": 3}, {}], ["seed=3", "seed=0"]),
        ([{"data__partition_seed": 3}, {}], ["partition_seed=3", "partition_seed=0"]),
        ([{"data__seed": 7}, {"data__seed": 7, "seed": 7}], ["seed=0", "seed=7"]),
        ([{"data__seed": 3}, {}], ["data.seed=3", "data.seed=0"]),
        ([{"server__lr": 0.1}, {"server__lr": 0.1000001}], ["lr=0.1", "lr=0.1000001"]),
        ([{"model__hidden": [4, 4]}, {}], ["hidden=[4, 4]", "hidden=[8]"]),
        (
            [
                {
                    "run_dir": "y",
                    "data_dir": "y",
                    "data__corruption_cache": "y",
                    "data__root": "y",
                    "trainer__enable_progress_bar": True,
                },
                {},
            ],
            ["0", "1"],
        ),
        ([{"partition": {"_target_": "lightning_fl.partition.iid.Iid"}}, {}], ["iid", "none"]),
        ([{"server__maximize": True}, {}], ["maximize=true", "1"]),
        ([{"server__maximize": None}, {"model__activation": ""}], ["0", "1"]),
        ([{"aggregator": KRUM | {"neighbours": "n-f-2"}}, {"aggregator": KRUM}], ["0", "1"]),
        ([{"aggregator": KRUM | {"neighbours": "n-f"}}, {"aggregator": KRUM}], ["neighbours=n-f", "neighbours=n-f-2"]),
        (
            [{"aggregator__mu": 1.0, "client__mu": 2.0}, {"aggregator__mu": 2.0, "client__mu": 1.0}],
            ["aggregator.mu=1, client.mu=2", "aggregator.mu=2, client.mu=1"],
        ),
    ],
)
def test_labels_are_the_settings_that_differ(tmp_path, changes, expected):
    folders = [saved.run(tmp_path / str(i), saved.changed(saved.CONFIG, **change)) for i, change in enumerate(changes)]
    assert labels([SavedRun.read(folder) for folder in folders]) == expected


def test_runs_alike_are_told_apart_by_folder_and_place(tmp_path):
    config = saved.changed(saved.CONFIG, aggregator=AVERAGE)
    folders = [saved.run(tmp_path / "a"), saved.run(tmp_path / "b"), saved.run(tmp_path / "c", config)]
    runs = [SavedRun.read(folder) for folder in folders]
    assert labels(runs) == ["boba (a)", "boba (b)", "average"]
    assert labels([runs[0], runs[0]]) == ["a [0]", "a [1]"]
    assert labels(runs[:1]) == ["a"]


@pytest.mark.parametrize(
    ("given", "shares"),
    [
        ({"honest": 3.0, "byzantine": 1.0}, (0.75, 0.25)),
        ({"honest": 1.5, "byzantine": -0.5}, (0.75, -0.25)),
        ({"honest": 0.9, "byzantine": None}, (1.0, 0.0)),
        ({"honest": 0.0, "byzantine": 0.0}, (0.0, 0.0)),
        ({"honest": None, "byzantine": None}, None),
    ],
)
def test_trust_is_shared_by_size(given, shares):
    assert trust_shares({"mean_weight": given}) == shares
