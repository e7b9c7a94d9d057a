"""Many runs in one table."""

import csv
import io
import os
import re
import shutil
from collections import Counter
from math import sqrt

import pytest
from matplotlib.figure import Figure
from torch import nn

from lightning_fl import DataError, SettingError, plot
from lightning_fl.run.python import Run
from lightning_fl.run.saved import SavedRun
from lightning_fl.study.compare import Comparison, compare, find, varying
from lightning_fl.study.pivot import Group, t_quantile
from tests import saved

PICTURES = [f"{name}.{end}" for name in ("compare", "curves_panel_1", "curves_panel_2") for end in ("png", "pdf")]


def run(folder, accuracy, status="completed", metrics=saved.METRICS, **changes):
    """A run's folder with an accuracy."""
    summary = saved.SUMMARY | {"status": status, "accuracy": None if status == "diverged" else accuracy}
    return saved.run(folder, saved.changed(saved.CONFIG, **changes), metrics, summary=summary)


KRUM = {"_target_": "lightning_fl.aggregator.krum.Krum", "f": 1}
LIE = {"_target_": "lightning_fl.adversary.lie.Lie", "factor": None}


@pytest.fixture
def grid(tmp_path):
    """Boba and Krum against IPM and LIE, three seeds each: accuracies in hundredths."""
    runs = {
        ("boba", "ipm"): (0.70, 0.72, 0.74),
        ("boba", "lie"): (0.60, 0.60, 0.60),
        ("krum", "ipm"): (0.50, 0.52, 0.60),
        ("krum", "lie"): (0.40, 0.50, None),
    }
    for (rule, attack), values in runs.items():
        changes = {"aggregator": KRUM} if rule == "krum" else {}
        changes |= {"adversary": LIE} if attack == "lie" else {}
        for seed, value in enumerate(values):
            status = "completed" if value else "diverged"
            seeds = {"seed": seed, "data__seed": seed, "federation__seed": seed, "data__partition_seed": seed}
            run(tmp_path / "runs" / rule / f"{attack}{seed}", value, status, **seeds, **changes)
    return tmp_path / "runs"


def test_a_twin_is_beside_its_run_and_no_run_of_its_own(grid):
    """BOBA under IPM has 70, 72 and 74: 72.0 with 5.0 on each side."""
    plain = Comparison(find([grid]), "aggregator", "adversary")
    seeds = {"seed": 1, "data__seed": 1, "federation__seed": 1, "data__partition_seed": 1}
    run(grid / "twin", 0.69, **seeds, twin=1)
    beside = Comparison(find([grid]), "aggregator", "adversary")
    assert beside.cells == plain.cells
    first, second = map(str.strip, beside.text().removeprefix(plain.text()).strip().splitlines())
    assert first.startswith("Twins of 1 cell: |run - twin| median 3.0, 95th percentile 3.0 points; farther")
    assert second == (
        "These numbers can carry their conclusions: rounding moves a run by less than 5.0 points, half of the seeds' "
        "interval."
    )
    assert second in beside.markdown()
    shutil.rmtree(grid / "boba" / "ipm1")  # without its run, a twin is one
    assert len(Comparison(find([grid]), "aggregator", "adversary").panels) == 2


# From a printed table of Student's distribution.
@pytest.mark.parametrize(
    ("degrees", "expected"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (10, 2.228), (30, 2.042), (120, 1.980)],
)
def test_students_t(degrees, expected):
    assert t_quantile(degrees) == pytest.approx(expected, abs=6e-4)


def test_mean_and_interval_by_hand():
    # Deviations -2, 0, 2: s = 2, half = 4.303 * 2 / sqrt(3).
    cell = Group([70.0, 72.0, 74.0], Counter())
    assert cell.mean == 72
    assert cell.half == pytest.approx(4.3027 * 2 / sqrt(3), rel=1e-4)
    assert str(cell) == "72.0 ± 5.0"


@pytest.mark.parametrize(
    ("values", "lost", "shown"),
    [
        ([50.0], {}, "50.0"),
        ([], {"diverged": 1}, "diverged"),
        ([], {"diverged": 2}, "2 of 2 diverged"),
        ([50.0], {"diverged": 1, "interrupted": 1}, "50.0 (1 of 3 diverged, 1 of 3 interrupted)"),
        ([], {}, "-"),
    ],
)
def test_lost_runs_are_marked(values, lost, shown):
    assert str(Group(values, Counter(lost))) == shown


def test_a_kappa_has_three_digits():
    assert str(Group([0.01234, 0.01234], Counter(), percent=False)) == "0.0123 ± 0"


def test_rows_columns_and_worst_case(grid):
    found = Comparison(find([grid]), "aggregator", "adversary")
    ((panel, header, lines, best),) = found.tables(worst=True)
    assert best == {(0, 1), (0, 2)}
    assert panel == ""
    assert header == ["aggregator", "ipm", "lie", "worst"]
    # 0.50, 0.52, 0.60: mean 54, s = sqrt((16 + 4 + 36) / 2) = 5.29, half 13.1.  0.40, 0.50: half 12.706 * 5.
    krum = ["krum", "54.0 ± 13.1", "45.0 ± 63.5 (1 of 3 diverged)", "diverged"]
    assert lines == [["boba", "72.0 ± 5.0", "60.0 ± 0.0", "60.0 ± 0.0"], krum]
    assert "mean of 2 to 3 completed runs" in found.caption
    assert "95 % interval of the mean (Student's t over seeds)" in found.caption


def test_without_axes_the_first_settings_that_differ(grid):
    found = Comparison(find([grid]))
    assert (found.rows_by, found.columns_by) == ("aggregator", "adversary")
    assert Comparison(find([grid / "boba"])).rows_by == "adversary"
    assert Comparison(find([grid / "boba" / "ipm0"])).tables(False)[0][2] == [["boba", "70.0"]]


def test_what_no_axis_tells_apart_makes_panels(grid):
    found = Comparison(find([grid]), "aggregator")
    assert found.panels == ["ipm", "lie"]
    assert [lines[0] for _, _, lines, _ in found.tables(False)] == [["boba", "72.0 ± 5.0"], ["boba", "60.0 ± 0.0"]]


def test_rules_of_one_name_are_told_apart_by_their_settings(tmp_path):
    run(tmp_path / "a", 0.5)
    run(tmp_path / "b", 0.6, aggregator__p_min=0.0)
    found = Comparison(find([tmp_path]), "aggregator")
    assert found.rows == ["boba, p_min=-0.5", "boba, p_min=0"]
    inner = Comparison(find([tmp_path]), "aggregator.p_min")
    assert inner.rows == ["-0.5", "0"]
    assert inner.panels == [""]


def test_a_setting_that_only_some_runs_have_makes_a_panel(tmp_path):
    run(tmp_path / "a", 0.25)
    run(tmp_path / "b", 0.5, server__maximize=True)
    assert Comparison(find([tmp_path]), "aggregator").panels == ["", "maximize=true"]


def test_settings_of_one_name_are_told_apart(tmp_path):
    for number, (ours, theirs) in enumerate([(1.0, 1.0), (1.0, 2.0), (2.0, 1.0), (2.0, 2.0)]):
        run(tmp_path / str(number), number / 4, aggregator__mu=ours, client__mu=theirs)
    found = Comparison(find([tmp_path]), "aggregator.mu")
    assert [(panel, lines) for panel, _, lines, _ in found.tables(False)] == [
        ("client.mu=1", [["1", "0.0"], ["2", "50.0"]]),
        ("client.mu=2", [["1", "25.0"], ["2", "75.0"]]),
    ]


def test_seeds_of_a_rule_follow_the_run_s_beside_rules_without(tmp_path):
    for seed in (0, 1):
        following = {"seed": seed, "data__seed": seed, "federation__seed": seed, "data__partition_seed": seed}
        run(tmp_path / f"a{seed}", 0.5, **following)
        run(tmp_path / f"b{seed}", 0.7, **following, aggregator=KRUM | {"seed": seed})
    assert Comparison(find([tmp_path])).tables(False)[0][2] == [["boba", "50.0 ± 0.0"], ["krum", "70.0 ± 0.0"]]


def test_numbers_are_ordered_by_size(tmp_path):
    for i, factor in enumerate([10.0, 2.0, 0.5]):
        run(tmp_path / str(i), 0.5, adversary__factor=factor)
    assert Comparison(find([tmp_path]), "adversary.factor").rows == ["0.5", "2", "10"]


def test_the_worst_case_of_drops_is_the_largest(tmp_path):
    saved.run(tmp_path / "a", summary=saved.SUMMARY | {"mrd": 0.1})
    saved.run(tmp_path / "b", saved.changed(saved.CONFIG, adversary=LIE), summary=saved.SUMMARY | {"mrd": 0.3})
    found = Comparison(find([tmp_path]), "aggregator", "adversary", metric="mrd")
    assert found.tables(True)[0][2] == [["boba", "10.0", "30.0", "30.0"]]


@pytest.mark.parametrize(
    ("metric", "cells", "last"),
    [
        ("accuracy", ["90.0", "70.0", "70.0"], 75.0),
        ("validation_accuracy", ["80.0", "40.0", "40.0"], 50.0),
        ("worst_recall", ["35.0", "20.0", "20.0"], 50.0),
        ("mrd", ["10.0", "30.0", "30.0"], 25.0),
        ("attack", ["20.0", "60.0", "60.0"], 12.5),
        ("kappa", ["0.5", "1.5", "1.5"], 3.0),
        ("auc", ["90.0", "60.0", "60.0"], 87.5),
    ],
)
def test_every_metric_has_its_numbers_its_unit_and_its_worst_case(tmp_path, metric, cells, last):
    measured = {"round": 2, "loss": 0.5, "accuracy": 0.75, "recall/0": 1.0, "recall/1": 0.5, "robustness/kappa": 3.0}
    measured |= {"detection/auc": 0.875, "validation_accuracy": 0.5, "mrd": 0.25, "attack/success_rate": 0.125}
    for name, attack, accuracy, validated, mrd, success, mean, most in [
        ("a", {}, 0.9, 0.8, 0.1, 0.2, 0.5, 8.0),
        ("b", {"adversary": LIE}, 0.7, 0.4, 0.3, 0.6, 1.5, 2.0),
    ]:
        found = {"accuracy": accuracy, "validation_accuracy": validated, "mrd": mrd, "first_evaluation": None}
        found |= {"recall": [0.35, None, 0.95] if name == "a" else [0.9, 0.2]}
        found |= {
            "attack": {"success_rate": success},
            "detection": saved.SUMMARY["detection"] | {"auc": 1 - success / 2 if name == "a" else 0.6},
            "robustness": saved.SUMMARY["robustness"] | {"mean": mean, "max": most},
        }
        saved.run(tmp_path / name, saved.changed(saved.CONFIG, **attack), [measured], None, saved.SUMMARY | found)
    compared = Comparison(find([tmp_path]), "aggregator", "adversary", metric=metric)
    assert compared.tables(True)[0][2] == [["boba", *cells]]
    assert [cell.curves for cell in compared.cells.values()] == [[({2: last}, False)]] * 2


def test_the_worst_case_says_what_is_missing(tmp_path):
    run(tmp_path / "a", 0.5)
    run(tmp_path / "b", 0.4, adversary=LIE)
    run(tmp_path / "c", 0.6, aggregator=KRUM)
    lines = Comparison(find([tmp_path]), "aggregator", "adversary").tables(True)[0][2]
    assert lines == [["boba", "50.0", "40.0", "40.0"], ["krum", "60.0", "-", "60.0 (1 of 2 columns)"]]


def test_each_panel_has_its_own_columns_for_the_worst(tmp_path):
    run(tmp_path / "a", 0.5)
    run(tmp_path / "b", 0.4, adversary=LIE, federation__n_clients=9)
    found = Comparison(find([tmp_path]), "aggregator", "adversary", ["federation.n_clients"]).tables(True)
    assert [lines for _, _, lines, _ in found] == [[["boba", "50.0", "50.0"]], [["boba", "40.0", "40.0"]]]


def test_the_best_has_no_diverged_run(tmp_path):
    run(tmp_path / "a", 0.9)
    run(tmp_path / "b", None, "diverged", seed=1, data__seed=1, federation__seed=1, data__partition_seed=1)
    run(tmp_path / "c", 0.5, aggregator=KRUM)
    ((_, _, lines, best),) = Comparison(find([tmp_path]), "aggregator", "adversary").tables(False)
    assert [line[1] for line in lines] == ["90.0 (1 of 2 diverged)", "50.0"]
    assert best == {(1, 1)}


def test_runs_that_did_not_end_are_marked(tmp_path):
    run(tmp_path / "a", 0.5)
    run(tmp_path / "b", 0.9, "interrupted", seed=1)
    (run(tmp_path / "c", 0.9, seed=2) / "summary.json").unlink()
    text = Comparison(find([tmp_path])).text()
    assert "50.0 (1 of 3 interrupted, 1 of 3 unfinished)" in text


def test_the_same_run_twice_counts_once(tmp_path):
    run(tmp_path / "a", 0.9, "interrupted")
    run(tmp_path / "b", 0.5, run_dir="elsewhere")
    run(tmp_path / "c", 0.5, seed=1)
    found = Comparison(find([tmp_path]))
    assert found.tables(False)[0][2] == [["boba", "50.0 ± 0.0"]]
    assert "1 older run of the same settings left out" in found.caption


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"aggregator": KRUM}, {"aggregator": KRUM | {"neighbours": "n-f-2"}}),
        ({}, {"data__validation_share": None}),
        ({"adversary": LIE | {"factor": 1}}, {"adversary": LIE | {"factor": 1.0}}),
    ],
)
def test_the_same_run_of_an_older_version_counts_once(tmp_path, before, after):
    for seed in (0, 1):
        run(tmp_path / f"a{seed}", 0.5, seed=seed, **before)
        run(tmp_path / f"b{seed}", 0.6, seed=seed, **after)
        os.utime(tmp_path / f"a{seed}" / "config.yaml", (seed + 1, seed + 1))
    found = Comparison(find([tmp_path]))
    assert found.repeated == 2
    (line,) = found.tables(False)[0][2]
    assert line[1] == "60.0 ± 0.0"


def test_of_runs_with_the_same_settings_the_newest_counts(tmp_path):
    """Their code may differ: a rule of one's own has been edited in between."""
    for age, (name, accuracy) in enumerate([("b", 0.7), ("c", 0.3), ("a", 0.5)]):
        run(tmp_path / name, accuracy)
        os.utime(tmp_path / name / "config.yaml", (1e9 - age, 1e9 - age))
    assert Comparison(find([tmp_path])).tables(False)[0][2] == [["boba", "70.0"]]


def test_of_runs_with_the_same_settings_one_that_has_the_number_counts(tmp_path):
    saved.run(tmp_path / "old", saved.changed(saved.CONFIG, reference="run"), summary=saved.SUMMARY | {"mrd": 0.25})
    saved.run(tmp_path / "new", summary=saved.SUMMARY | {"mrd": None})
    os.utime(tmp_path / "old" / "config.yaml", (1e9, 1e9))
    assert Comparison(find([tmp_path]), metric="mrd").tables(False)[0][2] == [["boba", "25.0"]]


@pytest.mark.drawn
def test_files(grid, tmp_path):
    found = Comparison(find([grid]), "aggregator", "adversary")
    paths = found.write(tmp_path / "out", worst=True)
    assert [path.name for path in paths] == ["compare.md", "compare.csv", "compare.tex", "compare.html", *PICTURES]
    text = paths[0].read_text(encoding="utf-8")
    assert "| aggregator | ipm | lie | worst |\n| --- | ---: | ---: | ---: |\n| boba | **72.0 ± 5.0** |" in text
    lines = paths[1].read_text().splitlines()
    assert lines[0] == "panel,aggregator,adversary,runs,mean,low,high,diverged,interrupted,unfinished,values"
    assert lines[1] == ",boba,ipm,3,72,67.0317,76.9683,0,0,0,70 72 74"
    assert lines[-1].endswith(",1,0,0,40 50")
    without = Comparison(find([grid]), "aggregator", "adversary", metric="attack").csv().splitlines()
    assert without[0].endswith(",diverged,interrupted,unfinished,attack not recorded,values")
    assert without[1].endswith(",,,,0,0,0,3,")
    latex = paths[2].read_text(encoding="utf-8")
    assert r"boba & \textbf{72.0 $\pm$ 5.0} & \textbf{60.0 $\pm$ 0.0} & 60.0 $\pm$ 0.0 \\" in latex
    assert [path.read_bytes()[:4] for path in paths[4:]] == [b"\x89PNG", b"%PDF"] * 3


def test_a_panel_of_one_cell_has_no_picture(tmp_path):
    """Where there are others: runs that differ in everything would have two pictures each."""
    for name, changes in {"a": {}, "b": {"aggregator": KRUM}, "c": {"server__lr": 9.0}}.items():
        run(tmp_path / name, 0.5, **changes)
    for names, pictures in [("abc", ["compare.png", "curves.png"]), ("ac", []), ("a", ["compare.png", "curves.png"])]:
        found = Comparison(find([tmp_path / name for name in names]), "aggregator")
        assert [path.name for path in found.write(tmp_path / "out") if path.suffix == ".png"] == pictures
        assert len(found.panels) == len({*names} - {"b"})


def test_curves_of_many_rows_and_panels_fill_several_pictures(tmp_path, monkeypatch):
    """Seven lines each, the rest in further pictures; curves start where the initial model is."""
    drawn = []
    monkeypatch.setattr(
        plot, "grouped_curves", lambda curves, *args: drawn.append(curves) or [Figure()] if curves else []
    )
    for f in range(8):
        for factor in range(3):
            name = f"{f}-{factor}"
            run(tmp_path / "runs" / name, 0.5, aggregator__f=f, adversary__factor=float(factor))
    found = Comparison(find([tmp_path / "runs"]), "aggregator.f", "adversary.factor")
    names = [path.name for path in found.write(tmp_path / "out") if path.suffix == ".png"]
    assert names[-2:] == ["curves_panel_1.png", "curves_panel_2.png"]
    assert [len(curves) for curves in drawn] == [7 * 3, 3]
    assert len(set().union(*drawn)) == 8 * 3
    assert all(points == {0: 50.0, 2: 75.0} for curves in drawn for ((points, _),) in curves.values())
    Comparison(find([tmp_path / "runs" / "0-0"])).write(tmp_path / "out")
    left = sorted(path.name for path in (tmp_path / "out").glob("*.p*"))
    assert left == ["compare.pdf", "compare.png", "curves.pdf", "curves.png"]


def test_folders_are_searched_for_runs(tmp_path):
    run(tmp_path / "deep" / "er" / "1", 0.5)
    run(tmp_path / "2", 0.5)
    run(tmp_path / "references" / "r", 0.5, run_name="reference")
    run(tmp_path / ".hidden" / "h", 0.5)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.yaml").write_text("wandb: {value: 1}\n")
    for name, text in [("empty", ""), ("several", "a: 1\n---\nb: 2\n")]:  # other programs'
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(text)
    assert [path.name for path in find([tmp_path, tmp_path / "2"])] == ["2", "1"]
    (tmp_path / "empty" / "metrics.csv").touch()
    with pytest.raises(DataError, match=r"empty/config\.yaml needs named settings"):
        find([tmp_path])
    assert [path.name for path in find([tmp_path / "references" / "r"])] == ["r"]


def test_refusals(grid, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no run found in .*empty; a run's folder holds config.yaml"):
        find([tmp_path / "empty"])
    with pytest.raises(DataError, match="nowhere is not a folder"):
        find([tmp_path / "nowhere"])
    with pytest.raises(SettingError, match=r"got partition\.alfa; these differ: aggregator, adversary"):
        Comparison(find([grid]), "partition.alfa")
    with pytest.raises(SettingError, match="there is no metric acuracy; did you mean accuracy"):
        Comparison(find([grid]), metric="acuracy")


def test_varying_leaves_out_the_seed_and_what_follows_the_rule():
    a = {"seed": 0, "f": 1, "aggregator": {"_target_": "x.Krum", "f": 1}, "model": {"_target_": "m", "hidden": 5}}
    b = {"seed": 1, "f": 2, "aggregator": {"_target_": "x.Krum", "f": 2}, "model": {"_target_": "m", "hidden": 7}}
    assert varying([a, b]) == ["aggregator.f", "model.hidden"]
    assert varying([a, a]) == []


def test_runs_without_an_attack_have_no_number_of_attackers_to_differ_in():
    clean, few = {"adversary": None, "federation": {}}, {"federation": {"n_byzantine": 2}}
    attacks = [{"adversary": {"_target_": name}} | few for name in ("Ipm", "Lie")]
    assert varying([clean, *attacks]) == ["adversary"]
    more = {"adversary": {"_target_": "Lie"}, "federation": {"n_byzantine": 3}}
    assert varying([clean, *attacks, more]) == ["adversary", "federation.n_byzantine"]


def test_names_run_nothing_in_a_spreadsheet_a_page_or_a_terminal(tmp_path):
    """Runs may be somebody else's: their settings are text, whatever stands there."""
    names = [
        "=HYPERLINK(1)",
        "+1+2",
        "@SUM(1)",
        "-1+cmd|' /C'!A",
        "-1.5",
        "<script>alert(1)</script>",
        "[x](javascript:a)",
    ]
    names.append("a\n\\input{/etc/passwd}\x1b]0;b")
    config = {"seed": 0, "aggregator": {"_target_": "a.average.Average"}, "trainer": {}, "federation": {}}
    for i, name in enumerate(names):
        saved.run(tmp_path / str(i), config=config | {"=note": name})
    found = Comparison(find([tmp_path]), rows="=note")
    with io.StringIO(found.csv()) as file:
        header, *rows = csv.reader(file)
    assert header[1] == "'=note"
    assert {row[1] for row in rows} == {
        *(f"'{name}" for name in names[:4]),
        *names[4:7],
        "a \\input{/etc/passwd} ]0;b",
    }
    assert not re.search(r"<script|[^\\]\]\(|\x1b", found.markdown())
    assert "&lt;script>" in found.markdown()
    assert "\\input" not in found.latex()
    assert "\x1b" not in found.text()


def in_memory(accuracy, folder, **changes):
    """A run that was read into memory, as `fl.train` returns it."""
    found = SavedRun.read(run(folder, accuracy, **changes))
    table = (found.metrics, found.weights, found.summary)
    return Run(nn.Identity(), found.status, accuracy, None, *table, "", found.clients, found.config)


def test_runs_in_memory_are_compared_like_folders(grid, tmp_path):
    """The means of `grid` by hand, as above; one run of krum is in memory, in a list as several seeds are."""
    gone = grid / "krum" / "ipm2"
    memory = in_memory(0.60, gone, aggregator=KRUM, seed=2, data__seed=2, federation__seed=2, data__partition_seed=2)
    shutil.move(gone, tmp_path / "kept")
    found = compare([str(grid), [memory]])
    assert found.tables(False)[0][2][1][:2] == ["krum", "54.0 ± 13.1"]
    frame = found.frame.set_index(["aggregator", "adversary"])
    assert frame.loc[("boba", "ipm"), "mean"] == pytest.approx(72)
    assert frame.loc[("krum", "lie"), ["runs", "diverged"]].tolist() == [2, 1]
    assert frame.loc[("krum", "lie"), "high"] == pytest.approx(45 + 63.5, abs=0.1)
    assert frame.loc[("krum", "ipm"), "values"] == pytest.approx([50, 52, 60])
    assert repr(found) == found.text()
    assert "<td>54.0 ± 13.1</td>" in found._repr_html_()
    assert isinstance(found.plot()["compare"], Figure)
    del memory.summary["attack"]  # of an attack that measures nothing of itself
    assert compare([memory], metric="attack").tables(False)[0][2] == [["krum", "attack not recorded"]]
    again = compare([memory, memory, tmp_path / "kept"])
    assert (again.repeated, again.tables(False)[0][2]) == (2, [["krum", "60.0"]])


def test_runs_in_memory_that_nothing_tells_apart_are_refused(tmp_path):
    one, other = (in_memory(0.5, tmp_path / name) for name in "ab")
    other.summary["last_evaluation"]["accuracy"] = 0.25
    with pytest.raises(SettingError, match=r"by their settings, got 2 with the same ones, seed 0 and other results"):
        compare([one, other])
    one.config["data"]["name"], other.config["data"]["name"] = "mine", "yours"
    assert compare([one, other]).rows == ["mine", "yours"]
    for nothing in ([], [[]]):
        with pytest.raises(DataError, match="compare needs a run, got none"):
            compare(nothing)
    with pytest.raises(SettingError, match=r"compare needs runs of fl\.train or folders, got int"):
        compare([3])


def test_runs_without_an_attack_have_one_column(tmp_path):
    for seed in range(2):
        seeds = {"seed": seed, "data__seed": seed, "federation__seed": seed, "data__partition_seed": seed}
        run(tmp_path / f"r{seed}", 0.5, adversary=None, **seeds)
    assert len(Comparison(find([tmp_path]), "aggregator", "adversary").columns) == 1
