"""A table's runs: which are there, which are missing, what they measured."""

from math import inf

import numpy as np
import pytest
import yaml

from lightning_fl import DataError, SettingError
from lightning_fl.study import grid, store, table_report
from lightning_fl.study.grid import Grid
from lightning_fl.study.runner import Runner
from lightning_fl.study.table import Table
from tests import saved
from tests.study.conftest import put
from tests.study.small import SMALL, finish


def test_what_is_taken_from_a_run(tmp_path):
    finish(tmp_path, [(10, 50.0), (20, 93.5), (30, 91.25)])
    found = grid.measure(tmp_path, target=90.0)
    assert found == {
        "status": "completed",
        "accuracy": 91.25,
        "best": 93.5,
        "rounds": 12,
        "rounds_to": 20,
        "loss": 0.5,
        "rule_ms": pytest.approx(2.5),  # 1, 3, 3, 3 ms
        "fits": 3.0,  # 6, 2, 2, 2
        "explained": pytest.approx(99.0),  # 96, 100, 100, 100 %
        "loss_ratio": pytest.approx(1.1),  # 1.4, 1, 1, 1
        "loss_ratio_95": pytest.approx(1.34),  # 0.85 of the way from 1 to 1.4
        "byzantine_share": 0.2,
        "seconds": 100.0,
        "recall": "50 25",
        "version": "0.1.0+gabc",
        "classes": 2,
        **dict.fromkeys(["client_mean", "client_worst", "client_tenth"]),
    }
    assert grid.measure(tmp_path, target=99.0)["rounds_to"] is None
    assert grid.measure(tmp_path, target=50.0)["rounds_to"] == 10  # at the target
    for target in range(1, 100):  # 100 * 0.57 < 57, and so is 100 times float32's 0.59
        for share in (target / 100, np.float32(target / 100).item()):
            finish(tmp_path, [(10, 100 * share)])
            assert grid.measure(tmp_path, float(target))["rounds_to"] == 10


def test_a_run_that_diverged_in_its_first_round_left_no_rows(tmp_path):
    last = {"round": None, "accuracy": None, "recall": None, "mrd": None}
    summary = saved.SUMMARY | saved.DIVERGED | {"rounds": 0, "last_evaluation": last}
    saved.run(tmp_path, metrics=None, weights=None, summary=summary)
    found = grid.measure(tmp_path, target=90.0)
    assert (found["status"], found["rounds"], found["accuracy"], found["loss"]) == ("diverged", 0, None, None)


def test_the_drop_is_against_the_reference_of_the_same_seed(small):
    made = small()
    recalls = {
        ("Average", 0): [0.9, 0.8],
        ("BOBA", 0): [0.7, 0.85],
        ("Average", 1): [0.5, 0.5],
        ("BOBA", 1): [0.6, 0.9],
    }
    for (row, seed), recall in recalls.items():
        put(made, (row, "Acc"), seed, [(10, 90.0)], recall=recall)
    assert made.over_seeds(("BOBA", "MRD"))[0] == [pytest.approx(20.0, abs=1e-4), 0.0]
    assert made.mean("Average", "MRD") is None


def test_a_drop_is_of_the_seeds_whose_reference_is_measured(small):
    made = small()
    for row, seed in [("Average", 0), ("BOBA", 0), ("BOBA", 1)]:
        recall = [0.9, 0.8] if row == "Average" else [0.7, 0.85]
        put(made, (row, "Acc"), seed, [(10, 90.0)], recall=recall)
    assert made.mean("BOBA", "MRD") == pytest.approx(20.0, abs=1e-4)
    put(made, ("Average", "Acc"), 1, [(10, 90.0)], "diverged", recall=[0.9, 0.8])
    assert made.mean("BOBA", "MRD") is None


def test_a_run_that_diverged_has_no_drop(small):
    """Its last recalls are those of some round before."""
    made = small()
    for row, status, recall in [("Average", "completed", [0.9, 0.8]), ("BOBA", "diverged", [0.7, 0.85])]:
        put(made, (row, "Acc"), 0, [(10, 90.0)], status, recall=recall)
    assert made.value_of(("BOBA", "MRD"), 0) is None
    assert made.mean("BOBA", "MRD") is None


def test_the_largest_accuracy_stands_though_the_run_diverged(small):
    made = small({("BOBA", "IPM", 0): 55.0}, diverged={("BOBA", "IPM", 0)}, value="best")
    assert made.mean("BOBA", "IPM") == pytest.approx(55.0)


@pytest.mark.parametrize(("value", "worst"), [("accuracy", 20.0), ("best", 20.0), ("rounds_to", 30.0)])
def test_the_worst_is_the_least_or_the_largest(small, value, worst):
    made = small(value=value, target="15", published={})
    for column, (number, accuracy) in {"IPM": (10, 20.0), "LIE": (30, 60.0)}.items():
        for seed in (0, 1):
            put(made, ("BOBA", column), seed, [(number, accuracy)])
    assert made.mean("BOBA", "Wst") == worst


def test_the_worst_is_not_known_before_all_columns_are(small):
    made = small({("BOBA", "LIE", 0): 60.0})
    assert made.mean("BOBA", "LIE") == 60.0
    assert made.mean("BOBA", "Wst") is None
    assert small({("BOBA", "IPM", 0): 20.0}).mean("BOBA", "Wst") == 20.0


def test_guessing_is_known_by_the_number_of_classes_where_the_table_has_no_chance(small):
    made = small({("BOBA", "IPM", 0): 55.0, ("BOBA", "LIE", 0): 70.0}, diverged={("BOBA", "IPM", 0)}, chance="nan")
    assert made.mean("BOBA", "IPM") == made.mean("BOBA", "Wst") == 50.0  # of two


def test_guessing_is_that_of_the_run_s_own_classes(small):
    made = small({("BOBA", "IPM", 0): 55.0, ("BOBA", "LIE", 0): 70.0}, diverged={("BOBA", "IPM", 0)}, chance="nan")
    made.record(("BOBA", "IPM"), 0)["classes"] = 4
    assert made.mean("BOBA", "IPM") == 25.0


def test_only_missing_cells_are_run_and_one_seed_of_everything_first(small):
    made = small({("BOBA", "Acc", 0): 90.0, ("Average", "IPM", 1): 10.0})
    labels = [cell.title for cell in made.missing(made.cells(["Average", "BOBA"], ["Acc", "MRD", "Wst"], [0, 1]))]
    assert labels == [
        *["Acc, Average, seed 0", "IPM, Average, seed 0", "LIE, Average, seed 0"],
        *["IPM, BOBA, seed 0", "LIE, BOBA, seed 0"],
        *["Acc, Average, seed 1", "LIE, Average, seed 1"],
        *["Acc, BOBA, seed 1", "IPM, BOBA, seed 1", "LIE, BOBA, seed 1"],
    ]
    compared = ["MRD, BOBA, seed 1", "MRD, Average, seed 1"]
    assert [cell.title for cell in made.missing(made.cells(["BOBA"], ["MRD"], [1]))] == compared
    assert len(made.missing(made.cells(["BOBA"], ["Acc"], [0]))) == 0


def test_seeds_come_from_the_option_for_them(tmp_path):
    with pytest.raises(SettingError, match="this from --seeds"):
        Grid(Table("small", SMALL), 1.0, ["seed=7"], [0], tmp_path)


@pytest.mark.parametrize("part", ["base", "rows", "columns"])
def test_a_table_s_own_settings_have_no_seed(tmp_path, part):
    seed = {"base": "seed=1", "rows": {"BOBA": "aggregator=boba seed=1"}, "columns": {"IPM": "adversary=ipm seed=1"}}
    given = {"title": "Small", "rows": {"BOBA": "aggregator=boba"}, "columns": {"IPM": "adversary=ipm"}}
    with pytest.raises(SettingError, match=r"this from --seeds .*, got seed=\.\.\.; leave it out"):
        Grid(Table("small", given | {part: seed[part]}), 1.0, [], [0], tmp_path)


def test_seeds_that_were_measured_before_are_shown(small, tmp_path):
    table_report.write(small({("BOBA", "Acc", 0): 80.0, ("BOBA", "Acc", 1): 90.0}))
    again = Grid(Table("small", SMALL), 1.0, [], [0], tmp_path / "runs")
    assert again.seeds == [0, 1]
    assert again.mean("BOBA", "Acc") == pytest.approx(85.0)


def test_a_table_like_another_has_its_kept_cells(small, tmp_path, monkeypatch):
    """Also one with a target, whose rounds another table's kept cells do not tell."""
    target = {"value": "rounds_to", "target": "15", "published": {}, "doubtful": []}
    made = small({("BOBA", "IPM", 0): 20.0}, **target)
    path = table_report.keep(made)
    path.rename(path.with_name("other.csv"))
    table = Table("mine", SMALL | target, like=["other"])
    monkeypatch.setattr(Table, "load", lambda name: Table(name, SMALL | target))
    asked = Grid(table, 1.0, [], [0], tmp_path / "elsewhere")
    assert {place for place in asked.overrides if asked.record(place, 0)} == {("BOBA", "IPM")}
    assert asked.value_of(("BOBA", "IPM"), 0) == 10


def test_a_table_like_another_keeps_its_own_cells_alone_and_shows_both(small, tmp_path, monkeypatch):
    tables = tmp_path / "tables"
    monkeypatch.setattr("lightning_fl.study.table.TABLES", tables)
    table_report.keep(small({("BOBA", "IPM", 0): 20.0, ("BOBA", "LIE", 0): 30.0}))
    (tables / "small.yaml").write_text(yaml.dump(SMALL))
    cells = [{"columns": ["LIE"], "overrides": "adversary.factor=0.7"}]
    (tables / "mine.yaml").write_text(yaml.dump({"like": "small", "title": "Mine", "cells": cells}))
    made = Grid(Table.load("mine"), 1.0, [], [0], tmp_path / "runs")
    assert made.mean("BOBA", "LIE") is None
    put(made, ("BOBA", "LIE"), 0, [(10, 40.0)])
    assert [(row["column"], row["accuracy"]) for row in grid.read(table_report.keep(made))] == [("LIE", 40.0)]
    shown = Grid(Table.load("mine"), 1.0, [], [], tmp_path, kept_only=True)
    found = {place: shown.mean(*place) for place in shown.overrides if shown.record(place, 0)}
    assert found == {
        ("BOBA", "IPM"): 20.0,
        ("BOBA", "LIE"): 40.0,
    }


def test_a_diverged_run_has_no_loss_to_compare(small):
    made = small({("BOBA", "IPM", 0): 55.0}, diverged={("BOBA", "IPM", 0)}, value="loss", published={}, doubtful=[])
    assert made.mean("BOBA", "IPM") == inf
    assert table_report.cell_text(made, ("BOBA", "IPM")) == ("diverged†", "")


def test_a_damaged_run_says_what_to_remove(small, tmp_path):
    finish(tmp_path / "run", [(10, 50.0)])
    (tmp_path / "run" / "metrics.csv").write_text("round,loss\n1,2,3\n")
    with pytest.raises(DataError, match=f"needs as many values as columns. To train .* again, remove {tmp_path}/run"):
        small().measure(tmp_path / "run")


def test_overrides_that_change_no_result_make_no_other_table(small, tmp_path):
    small({("BOBA", "Acc", 0): 90.0})
    more = ["trainer.accelerator=cpu", "data_dir=elsewhere", "+logger.wandb.project=x"]
    for overrides, stem in [(more, "small"), ([*more, "server.lr=1"], "small_server.lr=1")]:
        made = Grid(Table("small", SMALL), 1.0, overrides, [0], tmp_path / "runs")
        assert made.stem == stem
        assert made.changes == overrides[len(more) :]


def test_files_have_names_that_a_disk_takes(tmp_path):
    more = [f"model.hidden=[{','.join(['8'] * n)}]" for n in (200, 201)]
    first, second = (Grid(Table("small", SMALL), 1.0, [text], [0], tmp_path).stem for text in more)
    assert len(first) < 230
    assert first != second


def test_nothing_is_composed_to_list_what_is_missing(small, monkeypatch):
    monkeypatch.setattr(grid, "checked", None)
    made = small({("BOBA", "IPM", 0): 20.0})
    assert len(made.missing(made.cells(list(SMALL["rows"]), list(SMALL["columns"]), [0]))) == 5


def test_what_other_settings_measured_under_the_same_labels_does_not_count(small):
    small({("BOBA", "IPM", 0): 20.0, ("Average", "IPM", 0): 30.0})
    rows = SMALL["rows"] | {"BOBA": "aggregator=boba aggregator.f=3"}
    made = small(rows=rows)
    assert (made.mean("BOBA", "IPM"), made.mean("Average", "IPM")) == (None, 30.0)
    table_report.write(made)
    assert small().mean("BOBA", "IPM") == 20.0  # nothing is lost


def test_a_run_that_is_measured_already_is_taken_over(small, composed_once):
    """Whatever its table, its labels and how its settings are spelled."""
    path = table_report.keep(made := small({("BOBA", "IPM", 0): 20.0}))
    row = grid.read(path)[0] | {"row": "Elsewhere", "identity": made.compose(made.cell(("BOBA", "LIE"), 0)).folder.name}
    store.write(path.with_name("other.csv"), grid.FIELDS, [row])
    cells = [made.cell(("BOBA", column), 0) for column in ("LIE", "Acc")]
    trained = []

    class Trained(Runner):
        def train(self, runs):
            trained.extend(runs)
            return ()

    outcomes = list(made.train([(cell, made.compose(cell)) for cell in cells], Trained()))
    assert [outcome.run.label for outcome in outcomes] == ["LIE, BOBA, seed 0"]
    assert [run.label for run in trained] == ["Acc, BOBA, seed 0"]
    assert made.mean("BOBA", "LIE") == 20.0
    assert small().mean("BOBA", "LIE") == 20.0


def test_a_scaled_table_takes_nothing_over_from_another_target(small, composed_once):
    path = table_report.keep(small({("BOBA", "IPM", 0): 91.0}))
    path.rename(path.with_name("other.csv"))
    assert path.with_name("other.csv") in small()._elsewhere()
    assert (
        path.with_name("other.csv") not in small(value="rounds_to", target="95", published={}, doubtful=[])._elsewhere()
    )
