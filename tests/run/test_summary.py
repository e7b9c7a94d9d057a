"""What a person reads before and after a run."""

import itertools
import json
import os
import re
import signal
import warnings
from math import inf
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import ANY

import pytest
import torch
from matplotlib.figure import Figure
from pytorch_lightning.loggers.logger import DummyLogger

from lightning_fl import Federation, __version__
from lightning_fl.adversary.badnets import Badnets
from lightning_fl.adversary.ipm import Ipm
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.geometric_median import GeometricMedian
from lightning_fl.aggregator.krum import Krum
from lightning_fl.aggregator.median import Median
from lightning_fl.callback.record import Record
from lightning_fl.client.gradient import Gradient
from lightning_fl.run import page
from lightning_fl.run import summary as report
from lightning_fl.run.saved import SavedRun, read_summary
from tests import saved, training
from tests.callback.test_participants import Fixed


def test_a_backdoor_s_life_after_its_window():
    """Evaluated every 10 rounds; rounds 21 to 30 attack.  After them 10 rounds and 5 rounds end above a half."""
    rates = {10: 0.1, 20: 0.2, 30: 0.9, 40: 0.8, 50: 0.5, 55: 0.6}
    rows = [{"round": done, "attack/success_rate": rate} for done, rate in rates.items()]
    attack = Badnets(3, from_round=20, to_round=29)
    assert report._life(attack, rows) == {"success_peak": 0.9, "success_mean": 0.9, "lifespan": 15}
    assert report._life(Badnets(3, from_round=20), rows) == report._life(attack, [{"round": 10}]) == {}
    sparse = Badnets(3, from_round=20, to_round=29, every=8)  # 21 and 29 attack: the same window, ended later or not
    assert report._life(sparse, rows) == report._life(Badnets(3, from_round=20, to_round=28, every=8), rows)
    assert report._life(sparse, rows)["lifespan"] == 16  # to 30, 40 and from 50 to 55
    rows[0]["attack/success_rate"] = 1.0  # before the attack
    assert report._life(attack, rows) == {"success_peak": 0.9, "success_mean": 0.9, "lifespan": 15}


def test_the_mean_success_is_that_of_the_last_thirty_attacked_rounds():
    """Rounds 10, 12, ..., 98 attack; a row stands after that many rounds."""
    rows = [{"round": done, "attack/success_rate": done / 200} for done in range(1, 121)]
    expected = [(t + 1) / 200 for t in range(10, 99, 2)][-30:]
    life = report._life(Badnets(3, from_round=10, to_round=99, every=2), rows)
    assert life["success_mean"] == pytest.approx(sum(expected) / 30)
    assert "success_mean" not in report._life(Badnets(3, from_round=10, to_round=99, every=2), rows[99:])


class Pictures(DummyLogger):
    """A logger that takes pictures and curves."""

    def __init__(self):
        super().__init__()
        self.taken, self.charts = {}, {}

    def log_series(self, key, title, rounds, series):
        self.charts[key] = rounds, series

    def log_image(self, key, images):
        self.taken[key] = images


def run(n_byzantine=0, placement="supplement", server_samples=2, rounds=2, folder=None, **settings):
    """A trained module and its record."""
    data = training.data(Federation(3, n_byzantine, placement, "uniform"), Fixed(), server_samples)
    record = Record(folder) if folder else None
    callbacks = [Average(), *([Ipm(10.0)] if n_byzantine else []), *([record] if record else [])]
    module = training.fit(training.trainer(callbacks, rounds, **settings), data_=data)
    return module, record


DRAWN = {"participation": 0.9, "sampling": "bernoulli"}


class Finished:
    """What `summarise` looks at."""

    def __init__(self, diverged=None):
        self.diverged = diverged
        self.reference_recall = [1.0, 0.75]
        self.confusion = [[4, 0], [2, 2]]
        self.adversary = None
        self.client = Gradient()
        self.aggregator = Median(middle="upper")  # kappa 4 (1 + 1/2)^2 for 1 of 4

    data = SimpleNamespace(
        federation=Federation(4, 1, "replacement", "samples"),
        clients=SimpleNamespace(sizes=[1, 2, 3, 4]),
        n_classes=2,
        class_names=None,
    )


class Timed(Record):
    """A record of a known time."""

    seconds = 1.23456


def summarise(tmp_path, rows, status="completed", reason=None):
    record = Timed(tmp_path)
    record.metrics.rows = rows
    return report.summarise(Finished(reason), record, status)


COSTS = {f"communication/{name}": n for n, name in enumerate(["floats_up", "floats_down", "sample_gradients"], 5)}
LAST = {"accuracy": 0.75, "recall": [1.0, 0.5], "mrd": 0.25, "validation_accuracy": None, "client_accuracy": None}
ROWS = [
    COSTS
    | {"round": 1, "loss": 0.9, "robustness/kappa": 3.0, "weight/honest": 0.5, "weight/byzantine": 0.5}
    | {"detection/auc": 0.5},
    COSTS
    | {"round": 2, "loss": 0.8, "robustness/kappa": 1.0, "weight/honest": 1.0, "weight/byzantine": 0.0}
    | {"accuracy": 0.75, "recall/0": 1.0, "recall/1": 0.5, "mrd": 0.25}
    | {"detection/auc": 1.0, "detection/true_alarms": 0.5},
]


def test_summary_of_a_completed_run(tmp_path):
    assert summarise(tmp_path, ROWS) == {
        "schema": 1,
        "version": __version__,
        "status": "completed",
        "reason": None,
        "rounds": 2,
        "accuracy": 0.75,
        "recall": [1.0, 0.5],
        "mrd": 0.25,
        "validation_accuracy": None,
        "client_accuracy": None,
        "first_evaluation": {"accuracy": None, "recall": None},
        "last_evaluation": {"round": 2, **LAST},
        "guarantee": None,
        "mean_weight": {"honest": 0.75, "byzantine": 0.25},
        "detection": {"true_alarms": 0.5, "false_alarms": None, "auc": 0.75},
        "robustness": {"mean": 2.0, "max": 3.0, "infinite_rounds": 0, "bound": 9.0},
        "byzantine_share": 0.4,  # 4 of 10 samples
        "communication": {"floats_up": 10, "floats_down": 12, "sample_gradients": 14},
        "privacy": None,
        "seconds": 1.235,
        "n_classes": 2,
        "classes": None,
        "byzantine_clients": [3],
        "reference_recall": [1.0, 0.75],
        "confusion": [[4, 0], [2, 2]],
        "provenance": ANY,
    }


def test_the_first_evaluation_is_that_of_the_initial_model(tmp_path):
    record = Timed(tmp_path)
    record.first, record.metrics.rows = {"accuracy": 0.25, "recall/0": 0.5, "recall/1": 0.0}, ROWS
    summary = report.summarise(Finished(), record, "completed")
    assert summary["first_evaluation"] == {"accuracy": 0.25, "recall": [0.5, 0.0]}
    assert summary["last_evaluation"]["recall"] == [1.0, 0.5]


def test_privacy_is_that_of_who_took_part_most(tmp_path, monkeypatch):
    """In rounds 0, 1 and 2: clients 0 and 1, then 0 and 2, then 0."""
    told = {"epsilon": 2.5, "delta": 1e-5, "uploads": 3}
    monkeypatch.setattr(Gradient, "privacy", lambda self, rounds: told | {"uploads": rounds})
    monkeypatch.setattr(Federation, "participants", lambda self, t: ([[0, 1], [0, 2], [0]][t], [3]))
    summary = summarise(tmp_path, [{"round": 3}])
    assert summary["privacy"] == told
    assert "epsilon 2.5 at delta 1e-05, 3 uploads of a client at most" in report.results(summary, tmp_path)
    reason = "round 3: the loss is not finite"  # for which clients 0 had sent
    assert summarise(tmp_path, [{"round": 2}], "diverged", reason)["privacy"]["uploads"] == 3
    reason = "round 2: the model's outputs are not finite for 1 of 4 test samples"
    assert summarise(tmp_path, [{"round": 2}], "diverged", reason)["privacy"]["uploads"] == 2
    assert summarise(tmp_path, [], "interrupted")["privacy"]["uploads"] == 0  # it ended before its first round


def test_infinite_kappas_are_counted_apart(tmp_path):
    rows = [{"round": t, "robustness/kappa": value} for t, value in enumerate([inf, 0.5, inf, 1.5], 1)]
    summary = summarise(tmp_path, rows)
    assert summary["robustness"] == {"mean": 1.0, "max": 1.5, "infinite_rounds": 2, "bound": 9.0}
    shown = "kappa 1 (mean over rounds), 1.5 at most, infinite in 2 rounds; bound 9"
    assert shown in report.results(summary, tmp_path)
    never = summarise(tmp_path, rows[:1])
    assert never["robustness"] == {"mean": None, "max": None, "infinite_rounds": 1, "bound": 9.0}
    assert "kappa infinite in 1 round; bound 9" in report.results(never, tmp_path)
    assert "  robustness  " not in report.results(summarise(tmp_path, []), tmp_path)


def test_the_bound_needs_equal_weights_where_the_proof_does(tmp_path, monkeypatch):
    monkeypatch.setattr(Median, "kappa", GeometricMedian(eps=1e-5).kappa)
    assert summarise(tmp_path, ROWS)["robustness"]["bound"] is None


def test_where_rounds_draw_anybody_the_worst_of_them_counts(tmp_path, monkeypatch):
    """The median's kappa, 4 (1 + b / (n - 2b))^2, of 2 honest and 1 Byzantine client is the largest: 4 (1 + 1)^2."""
    rounds = [([0, 1, 2], [3]), ([0, 1], []), ([], []), ([1, 2], [3])]
    monkeypatch.setattr(Federation, "participants", lambda self, t: rounds[t])
    module, record = Finished(), Timed(tmp_path)
    module.data = SimpleNamespace(**vars(Finished.data) | {"federation": Federation(4, 1, "replacement", **DRAWN)})
    record.metrics.rows = [{"round": t} for t in range(1, 5)]
    summary = report.summarise(module, record, "completed")
    assert summary["robustness"]["bound"] == pytest.approx(16)
    assert summary["guarantee"] is None
    rounds[1] = [0, 1], [2, 3]
    summary = report.summarise(module, record, "completed")
    assert summary["robustness"]["bound"] is None
    assert summary["guarantee"] == "no guarantee: 2 clients attack, of 4 in some round"
    module.aggregator = Krum(1)
    summary = report.summarise(module, record, "completed")
    assert summary["guarantee"] == "no guarantee: 2 clients attack in some round, the rule tolerates f = 1"


def test_who_was_not_drawn_had_no_weight_in_that_round(tmp_path):
    rows = [
        {"round": 1, "weight/honest": 1.0},
        {"round": 2, "weight/honest": 0.75, "weight/byzantine": 0.25},
        {"round": 3, "weight/honest": 0.5, "weight/byzantine": 0.5},
        {"round": 4},
    ]
    assert summarise(tmp_path, rows)["mean_weight"] == {"honest": 0.75, "byzantine": 0.25}
    assert summarise(tmp_path, rows[:1])["mean_weight"] == {"honest": 1.0, "byzantine": None}


def test_a_rule_beyond_its_guarantee_says_so(tmp_path):
    record, module = Timed(tmp_path), Finished()
    record.metrics.rows, module.aggregator = ROWS, Krum(1)
    summary = report.summarise(module, record, "completed")
    assert summary["guarantee"] == "no guarantee: needs n >= 2f + 3, has 4 updates for f = 1"
    assert f"  rule             {summary['guarantee']}" in report.results(summary, tmp_path).splitlines()


def test_all_that_is_written_is_read(tmp_path):
    summary = summarise(tmp_path, [ROWS[1] | {"attack/success_rate": 0.5}])
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    assert read_summary(tmp_path / "summary.json") == summary
    assert summary["attack"] == {"success_rate": 0.5}


def test_the_result_of_a_diverged_run_is_null(tmp_path):
    summary = summarise(tmp_path, [*ROWS, {"round": 3, "loss": 9e9}], "diverged", "round 4: the loss is nan")
    assert (summary["status"], summary["reason"], summary["rounds"]) == ("diverged", "round 4: the loss is nan", 3)
    assert summary["accuracy"] is summary["recall"] is summary["mrd"] is None
    assert summary["last_evaluation"] == {"round": 2, **LAST}


def test_summary_of_a_run_without_a_round(tmp_path):
    summary = summarise(tmp_path, [], "interrupted")
    assert summary["rounds"] == 0
    assert summary["accuracy"] is summary["recall"] is summary["mrd"] is None
    assert summary["mean_weight"] == {"honest": None, "byzantine": None}
    json.dumps(summary, allow_nan=False)


def test_an_attack_that_measures_its_success_is_in_the_summary(tmp_path):
    measured = [*ROWS[:1], ROWS[1] | {"attack/success_rate": 0.625}]
    summary = summarise(tmp_path, measured)
    assert summary["attack"] == summary["last_evaluation"]["attack"] == {"success_rate": 0.625}
    diverged = summarise(tmp_path, measured, "diverged", "round 3: the loss is nan")
    assert diverged["attack"] is None
    assert diverged["last_evaluation"]["attack"] == {"success_rate": 0.625}
    assert results(tmp_path, measured)[0]["attack success rate"] == "62.50%"


def test_success_is_that_of_the_last_evaluation(tmp_path):
    earlier = {"round": 1, "accuracy": 0.5, "recall/0": 0.5, "recall/1": 0.5, "attack/success_rate": 0.125}
    summary = summarise(tmp_path, [earlier, ROWS[1] | {"attack/success_rate": 0.625}])
    assert summary["attack"] == summary["last_evaluation"]["attack"] == {"success_rate": 0.625}
    assert summary["recall"] == [1.0, 0.5]


def results(tmp_path, *args, name="files"):
    """The lines, by their first column."""
    folder = tmp_path / name
    folder.mkdir()
    (folder / "b.csv").touch()
    (folder / "a.png").touch()
    lines = report.results(summarise(tmp_path, *args), folder).splitlines()
    return dict(re.fullmatch(r"  (.*?)  +(.*)", line).groups() for line in lines), lines


def test_results_of_a_completed_run(tmp_path):
    shown, _ = results(tmp_path, ROWS)
    assert shown["status"] == "completed after 2 rounds, 1.2 s"
    assert shown["accuracy"] == "75.00% (round 2)"
    assert shown["recall"] == "0: 100.0%  1: 50.0%"
    assert shown["max-recall-drop"] == "25.00%"
    assert shown["weight given"] == "75.00% honest, 25.00% Byzantine (mean over rounds)"
    assert shown["communication"] == "10 floats up, 12 down, 14 sample gradients"
    assert shown["files"] == f"{tmp_path / 'files'}/: a.png, b.csv"


def test_results_of_a_diverged_run_claim_no_accuracy(tmp_path):
    shown, _ = results(tmp_path, ROWS, "diverged", "round 3: the loss is nan")
    assert shown["status"] == "diverged after 2 rounds, 1.2 s"
    assert shown["reason"] == "round 3: the loss is nan"
    assert shown["accuracy"] == "none; 75.0% when last measured (round 2)"
    assert "recall" not in shown


def test_results_without_reference_weights_or_evaluation(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    rows = [
        {"round": 1, "accuracy": 0.5} | {f"recall/{z}": 0.5 for z in range(6)} | COSTS
    ]  # class 6 has no test samples
    monkeypatch.setattr(Finished.data, "n_classes", 7)
    monkeypatch.setattr(Finished.data, "class_names", tuple("abcdefg"))
    shown, lines = results(tmp_path / "a", rows)
    assert shown["max-recall-drop"] == "n/a: no reference run (reference=run makes one)"
    assert shown["weight given"] == "none: not a weighting"
    assert lines[2].startswith("  recall ")
    assert lines[3].split() == ["f:", "50.0%", "g:", "no", "samples"]  # five classes a line
    (tmp_path / "c").mkdir()
    shown, _ = results(tmp_path / "c", [{"round": 1, "accuracy": 0.5}])
    assert shown["weight given"] == "none: no round was computed"
    shown, _ = results(tmp_path / "b", [{"round": 1, "loss": 0.5}], "interrupted")
    assert shown["status"] == "interrupted after 1 round, 1.2 s"
    again = f"repeat the command with ckpt_path=auto hydra.run.dir={tmp_path / 'b' / 'files'}"
    assert shown["to continue"] == again
    (tmp_path / "0").mkdir()
    shown, _ = results(tmp_path / "0", [{"round": 1, "loss": 0.5}], "interrupted", name="3")
    assert shown["to continue"].endswith(f"hydra.run.dir={tmp_path}/0/3 (of -m, hydra.sweep.dir={tmp_path}/0)")
    assert "accuracy" not in shown


def test_weights_that_do_not_sum_to_one_are_shown_as_shares(tmp_path):
    (tmp_path / "a").mkdir()
    rows = [{"round": 1, "accuracy": 0.5, "recall/0": 0.5, "weight/honest": 12.0, "weight/byzantine": 4.0}]
    shown, _ = results(tmp_path / "a", rows)
    assert shown["weight given"] == "75.00% honest, 25.00% Byzantine (mean over rounds)"


def test_files_below_the_working_folder_have_short_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown, _ = results(tmp_path, ROWS)
    assert shown["files"].startswith("files/: ")


FILES = ["clients.csv", "clients.png", "confusion.png", "metrics.csv", "recall.png", "report.html", "robustness.png"]
FILES += ["summary.json", "weights.csv", "weights.png"]


@pytest.mark.drawn
@pytest.mark.parametrize("n_byzantine", [0, 2])
def test_write(n_byzantine, tmp_path):
    pictures = Pictures()
    module, record = run(n_byzantine, folder=tmp_path, logger=pictures)
    summary = report.summarise(module, record, "completed")
    report.write(module, record, summary, tmp_path)
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    attacked = ["detection.png"] if n_byzantine else []
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*FILES, *attacked])
    drawn = ("recall", "confusion", "robustness", "weights", "clients", *(["detection"] if n_byzantine else []))
    assert all((tmp_path / f"{name}.png").read_bytes()[:4] == b"\x89PNG" for name in drawn)
    assert pictures.taken == {f"curves/{name}": [str(tmp_path / f"{name}.png")] for name in drawn}
    rounds, weights = pictures.charts["charts/weight"]
    assert rounds == [1, 2]
    names = ["honest, mean", "honest, smallest", *(["Byzantine, mean", "Byzantine, largest"] if n_byzantine else [])]
    assert list(weights) == names
    assert all(values == pytest.approx([100 / (3 + n_byzantine)] * 2) for values in weights.values())
    rounds, recalls = pictures.charts["charts/recall"]
    assert rounds == [0, 2]
    assert {name: round(values[1], 3) for name, values in recalls.items()} == {
        "accuracy": round(100 * summary["accuracy"], 3),
        **{f"class {z}": round(100 * value, 3) for z, value in enumerate(summary["recall"])},
    }
    title = "Average, 2 Ipm" if n_byzantine else "Average, no attack"
    assert f"<h1>{title}</h1>" in (tmp_path / "report.html").read_text()


def test_pictures_never_end_a_finished_run(tmp_path, monkeypatch, capsys):
    module, record = run(folder=tmp_path)

    def broken(*_):
        raise RuntimeError("findfont:\nno font")

    monkeypatch.setattr(report.page, "draw", broken)
    summary = report.summarise(module, record, "completed")
    report.write(module, record, summary, tmp_path)
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert capsys.readouterr().err.startswith("No pictures (RuntimeError: findfont: no font); ")


def test_curves_of_weights_and_recalls_by_hand(tmp_path):
    """Clients 1 and 3 attack; class 10 comes after class 9."""
    rows = [
        {"round": 1, "0": 0.5, "1": 0.02, "2": 0.1, "3": 0.08, "4": 0.3},
        {"round": 2, "0": 0.2, "1": 0.0, "2": 0.4, "3": 0.4, "4": 0.0},
    ]
    metrics = [{"round": 2, "loss": 0.5, "accuracy": 0.25} | {f"recall/{z}": z / 20 for z in range(11)}]
    summary = saved.SUMMARY | {"byzantine_clients": [1, 3], "first_evaluation": None}
    found = report.series(SavedRun(tmp_path, {}, metrics, rows, summary))
    _, rounds, curves = found["weight"]
    assert rounds == [1, 2]
    assert curves == {
        "honest, mean": pytest.approx([30, 20]),
        "honest, smallest": pytest.approx([10, 0]),
        "Byzantine, mean": pytest.approx([5, 20]),
        "Byzantine, largest": pytest.approx([8, 40]),
    }
    _, rounds, curves = found["recall"]
    assert rounds == [2]
    assert list(curves) == ["accuracy", *(f"class {z}" for z in range(11))]
    assert curves["accuracy"] == [25]
    assert [curves[f"class {z}"][0] for z in range(11)] == pytest.approx([5 * z for z in range(11)])


def test_curves_of_weights_where_rounds_draw_one_kind_alone(tmp_path):
    rows = [{"round": 1, "0": 0.5, "1": 0.5}, {"round": 2, "0": 1.0}, {"round": 3, "1": 1.0}]
    summary = saved.SUMMARY | {"byzantine_clients": [1], "first_evaluation": None}
    _, _, curves = report.series(SavedRun(tmp_path, {}, [], rows, summary))["weight"]
    honest, byzantine = [50, 100, 0], [50, 0, 100]
    assert curves == {
        **dict.fromkeys(["honest, mean", "honest, smallest"], honest),
        **dict.fromkeys(["Byzantine, mean", "Byzantine, largest"], byzantine),
    }


def test_clients_and_what_they_hold(tmp_path):
    module, record = run(1, folder=tmp_path)
    record.label_distributions = {1: [0.25, 0.75, 0.0], 3: [2.0, -0.5, -0.5]}
    (tmp_path / "config.yaml").write_text("seed: 0\n")
    report.write(module, record, report.summarise(module, record, "completed"), tmp_path)
    assert SavedRun.read(tmp_path).clients == [
        {"client": 0, "byzantine": 0, "samples/0": 6, "samples/1": 1, "samples/2": 0},
        {"client": 1, "byzantine": 0, "samples/0": 0, "samples/1": 5, "samples/2": 0}
        | {"estimate/0": 0.25, "estimate/1": 0.75, "estimate/2": 0},
        {"client": 2, "byzantine": 0, "samples/0": 0, "samples/1": 0, "samples/2": 6},
        {"client": 3, "byzantine": 1, "estimate/0": 2, "estimate/1": -0.5, "estimate/2": -0.5},
    ]
    assert "Label distribution of each client, held and estimated by the rule" in (tmp_path / "report.html").read_text()


def test_clients_that_were_replaced_are_byzantine_and_hold_data(tmp_path):
    module, record = run(2, "replacement", folder=tmp_path)
    rows = report.clients(module, record)
    assert [(row["client"], row["byzantine"]) for row in rows] == [(0, 0), (1, 1), (2, 1)]
    assert [[row[f"samples/{z}"] for z in range(3)] for row in rows] == [[6, 1, 0], [0, 5, 0], [0, 0, 6]]


def test_confusion_agrees_with_recall_and_accuracy(tmp_path):
    module, record = run(folder=tmp_path)
    summary = report.summarise(module, record, "completed")
    confusion = torch.tensor(summary["confusion"])
    assert confusion.sum(1).tolist() == [3, 3, 3]
    assert (confusion.diag() / 3).tolist() == pytest.approx(summary["recall"], abs=1e-6)
    assert confusion.trace().item() / 9 == pytest.approx(summary["accuracy"], abs=1e-6)
    assert summary["reference_recall"] is None


def test_loggers_get_no_confusion():
    module, _ = run()
    assert not any("confusion" in name for name in [*module.evaluation, *module.trainer.logged_metrics])


def test_lists_of_numbers_stand_on_one_line(tmp_path):
    module, record = run(folder=tmp_path)
    summary = report.summarise(module, record, "completed") | {
        "reason": "a [\n 1,\n 2\n] b",
        "recall": [0.5, None],
    }
    report.write(module, record, summary, tmp_path)
    text = (tmp_path / "summary.json").read_text()
    assert json.loads(text) == summary
    assert '"recall": [0.5, null]' in text
    assert len(text.splitlines()) < 65


def test_the_page_shows_the_configuration_and_what_is_not_default(tmp_path):
    module, record = run(folder=tmp_path)
    (tmp_path / "config.yaml").write_text("trainer:\n  max_steps: 2\n")
    summary = report.summarise(module, record, "completed")
    report.write(module, record, summary, tmp_path, {"trainer": {"max_steps": 100}})
    page = (tmp_path / "report.html").read_text()
    assert "<tr><td>trainer.max_steps</td><td>2</td><td>100</td></tr>" in page
    assert "trainer.max_steps=2</pre>" in page


def test_write_without_anything_to_draw(tmp_path):
    module, _ = run()
    record = Record(tmp_path)
    module.confusion = None
    report.write(module, record, report.summarise(module, record, "interrupted"), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clients.csv", "report.html", "summary.json"]
    assert "Interrupted after 0 rounds." in (tmp_path / "report.html").read_text()


def test_a_run_killed_while_it_writes_its_results_is_not_finished(tmp_path, monkeypatch):
    """Wherever that is (SIGKILL, in a process of its own): a folder with a summary has everything else."""
    module, record = run(folder=tmp_path / "run")
    summary = report.summarise(module, record, "completed")
    monkeypatch.setattr(page, "draw", lambda *_: {"recall": Figure()})

    def written(folder, deadly):
        passed = itertools.count(1)

        def before(function):
            def watched(*arguments, **settings):
                if next(passed) == deadly:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments, **settings)

            return watched

        Path.open, Path.replace = before(Path.open), before(Path.replace)
        report.write(module, record, summary, folder)

    found = []
    for deadly in range(1, 20):
        folder = tmp_path / str(deadly)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python fears for the threads that the child does not have
            child = os.fork()
        if not child:
            try:
                written(folder, deadly)
            finally:
                os._exit(0)
        killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        found.append({path.name for path in folder.glob("*") if path.suffix != ".part"})
        if not killed:
            break
    assert not killed
    assert found[-1] == {"clients.csv", "recall.png", "report.html", "summary.json"}
    assert len(found) > 4
    assert all("summary.json" not in names for names in found[:-1])
