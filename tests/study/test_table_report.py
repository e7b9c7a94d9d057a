"""What is written and drawn of a table, and what is kept of it."""

from statistics import stdev

import pytest

from lightning_fl.study import grid, store, table_report
from lightning_fl.study.grid import Grid
from lightning_fl.study.table import Table
from tests.study.conftest import put
from tests.study.small import SMALL, everything


def whole(made):
    return table_report.report(made).markdown()


def test_means_are_over_seeds_and_the_worst_is_of_means(small):
    accuracies = everything() | {("BOBA", "IPM", 0): 80.0, ("BOBA", "IPM", 1): 90.0, ("BOBA", "LIE", 0): 84.0}
    made = small(accuracies)
    assert made.mean("BOBA", "IPM") == pytest.approx(85.0)
    assert made.mean("BOBA", "LIE") == pytest.approx(87.0)
    assert made.mean("BOBA", "Wst") == pytest.approx(85.0)  # not 80, the least of all runs
    text, miss = table_report.cell_text(made, ("BOBA", "IPM"))
    assert text == f"**85.0** ({stdev([80, 90]):.1f}) −6.6*"
    assert miss == "BOBA, IPM: 85.0, paper 91.6 (0.2), 33.0 s.d. of the paper"


@pytest.mark.parametrize(
    ("accuracy", "difference", "missed"),
    [(92.8, "+0.3", False), (92.9, "+0.4", True), (92.2, "−0.3", False), (89.9, "−2.6", True)],
)
def test_a_miss_is_three_deviations_or_two_points(small, accuracy, difference, missed):
    made = small({("BOBA", "Acc", 0): accuracy})
    text, miss = table_report.cell_text(made, ("BOBA", "Acc"))  # 92.5 (0.1)
    assert text == f"**{accuracy}** {difference}" + "*" * missed
    assert bool(miss) == missed


def test_more_than_two_points_are_a_miss_whatever_the_deviation(small):
    made = small({("BOBA", "Acc", 0): 94.6}, published={"BOBA": ["92.5 (9.0)", "-", "91.6", "92.5 (0.2)", "91.5"]})
    assert table_report.cell_text(made, ("BOBA", "Acc"))[0] == "**94.6** +2.1*"


def test_a_diverged_run_counts_as_chance_and_is_a_miss_where_the_paper_has_more(small):
    runs_of = {("Average", "IPM", 0): 11.0, ("BOBA", "IPM", 0): 55.0}
    made = small(runs_of, diverged=runs_of)
    assert made.mean("Average", "IPM") == 10.0
    assert table_report.cell_text(made, ("Average", "IPM")) == ("diverged†", "")
    assert made.mean("BOBA", "IPM") == 10.0
    miss = "BOBA, IPM: diverged, paper 91.6 (0.2)"
    assert table_report.cell_text(made, ("BOBA", "IPM")) == ("diverged*†", miss)
    assert "## Apart from the paper: 1 of 2 cells" in whole(made)
    assert "- BOBA, IPM: after 12 rounds; last measured accuracy 55.0 %" in whole(made)


@pytest.mark.parametrize("value", ["client_mean", "client_worst", "client_tenth"])
def test_clients_of_a_diverged_run_guess(small, value):
    made = small({("BOBA", "IPM", 0): 55.0}, diverged={("BOBA", "IPM", 0)}, value=value, published={}, doubtful=[])
    assert made.mean("BOBA", "IPM") == 10.0
    assert table_report.cell_text(made, ("BOBA", "IPM")) == ("diverged†", "")


def test_the_time_of_a_rule_stands_though_the_run_diverged(small):
    unpublished = {"published": {}, "doubtful": []}
    assert "`†`" not in "".join(table_report.measured(small({("BOBA", "LIE", 0): 55.0}, **unpublished))[0])
    made = small({("BOBA", "IPM", 0): 55.0}, diverged={("BOBA", "IPM", 0)}, value="rule_ms", **unpublished)
    assert table_report.cell_text(made, ("BOBA", "IPM")) == ("**2.00**†", "")  # 1 and 3 ms
    assert "`†`: the run diverged." in table_report.measured(made)[0]


def test_a_doubtful_cell_that_diverged_is_no_miss(small):
    doubtful = [{"rows": ["BOBA"], "columns": ["IPM"], "reason": "a reason"}]
    made = small({("BOBA", "IPM", 0): 55.0}, diverged={("BOBA", "IPM", 0)}, doubtful=doubtful)
    assert table_report.cell_text(made, ("BOBA", "IPM")) == ("diverged†?", "")


def test_seeds_are_told_where_cells_have_different_ones(small):
    some = small({("BOBA", "IPM", 0): 80.0, ("BOBA", "IPM", 1): 90.0, ("BOBA", "LIE", 0): 84.0})
    assert "cells measured, seeds 0, 1 (1 cell at 2, 1 cell at 1); 3 runs" in whole(some)


def test_a_target_not_reached(small):
    made = small({("BOBA", "IPM", 0): 55.0}, value="rounds_to", target="50", published={}, doubtful=[])
    assert table_report.cell_text(made, ("BOBA", "IPM"))[0] == "**10**"
    made = small({("BOBA", "LIE", 0): 55.0}, value="rounds_to", target="60", published={}, doubtful=[])
    assert table_report.cell_text(made, ("BOBA", "LIE"))[0] == "not reached"
    put(made, ("BOBA", "LIE"), 1, [(10, 61.0)])
    assert table_report.cell_text(made, ("BOBA", "LIE"))[0] == "reached by 1 of 2"
    assert "  BOBA  reached by 1 of 2" in table_report.terminal(made, ["BOBA"], ["LIE"])
    latex = table_report.brief(made, list(made.table.rows), list(made.table.columns)).latex()
    assert "BOBA & " in latex
    assert "\n% Each cell: mean over seeds (s.d.).\n" in latex
    assert latex.count("reached by 1 of 2") == 1
    assert table_report.figure(made) is None  # a mean of those that reached it would look fast


def test_a_target_not_reached_has_no_difference(small):
    published = {"published": {"BOBA": ["-", "-", "3.0 (0.5)", "-", "-"]}, "doubtful": []}
    made = small({("BOBA", "IPM", 0): 55.0}, value="rounds_to", target="60", **published)
    miss = "BOBA, IPM: not reached, paper 3.0 (0.5)"
    assert table_report.cell_text(made, ("BOBA", "IPM")) == ("not reached*", miss)


def test_the_terminal_says_that_all_runs_diverged(small):
    made = small({("BOBA", "IPM", 0): 55.0}, diverged={("BOBA", "IPM", 0)})
    assert "  BOBA  diverged" in table_report.terminal(made, ["BOBA"], ["IPM"])


def test_numbers_that_no_paper_prints_have_the_digits_that_count(small):
    columns = {
        "Loss": {"overrides": "adversary=none", "value": "loss"},
        "Time": {"overrides": "adversary=none", "value": "rule_ms"},
        "Acc": "adversary=none",
    }
    made = small(columns=columns, published={}, doubtful=[], claims=[], reference=[])
    put(made, ("BOBA", "Loss"), 0, [(10, 12.34)])
    for loss, ms, texts in [
        (0.0312, 0.04, ["0.0312", "0.0400"]),
        (123.4, 12345.6, ["123", "12346"]),
        (999.4, 999.6, ["999", "1000"]),
        (0.0, 1.0, ["0.00", "1.00"]),
    ]:
        made.record(("BOBA", "Loss"), 0).update(loss=loss, rule_ms=ms)
        found = [table_report.cell_text(made, ("BOBA", column))[0] for column in ("Loss", "Time", "Acc")]
        assert found == [*(f"**{text}**" for text in texts), "**12.3**"]


def test_what_stands_around_a_mean_is_named(small):
    half = "**measured mean** ± half of its 95 % interval over seeds (Student's t) and its difference"
    assert half in whole(small(everything(), interval="true"))
    mine = whole(small(everything(), published={}, doubtful=[]))
    assert "(s.d.); `†` a run diverged: its accuracy counts as chance, 10." in mine


def test_doubtful_cells_are_marked_and_not_counted(small):
    made = small(everything(50.0))
    text, miss = table_report.cell_text(made, ("BOBA", "Wst"))
    assert text == "**50.0** −41.5?"
    assert not miss
    assert "- BOBA, Wst: a reason" in whole(made)


def test_processes_that_share_a_folder_keep_each_others_rows_and_seeds(small, tmp_path):
    """Both began before there was anything, and each was asked for its own."""
    small()
    first, second = (Grid(Table("small", SMALL), 1.0, [], [seed], tmp_path / "runs") for seed in (0, 1))
    put(first, ("Average", "IPM"), 0, [(10, 12.5)])
    put(second, ("BOBA", "Acc"), 1, [(10, 90.0)])
    for made in (first, second, first):
        text = table_report.write(made).read_text()
        assert "**12.5**" in text
        assert "**90.0**" in text
    rows = grid.read(tmp_path / "runs" / "small.csv")
    assert {(row["row"], row["column"], row["seed"]) for row in rows} >= {("Average", "IPM", 0), ("BOBA", "Acc", 1)}


def test_a_label_that_a_spreadsheet_would_compute_is_found_again(tmp_path):
    def made():
        table = {"title": "t", "rows": {"+momentum": "aggregator=average"}, "columns": ["adversary=ipm"]}
        return Grid(Table("own_signs", table), 1.0, [], [0], tmp_path)

    first = made()
    put(first, ("+momentum", "adversary=ipm"), 0, [(10, 12.5)])
    for _ in range(2):
        table_report.write(made())
        assert [row["row"] for row in grid.read(tmp_path / "own_signs.csv")] == ["+momentum"]
        assert made().missing(made().cells(["+momentum"], ["adversary=ipm"], [0])) == []


def test_what_was_kept_with_other_settings_is_dropped_on_demand(small, composed_once):
    made = small()
    for column in ("Acc", "IPM"):
        cell = made.cell(("BOBA", column), 0)
        made.add(cell, {"identity": made.compose(cell).folder.name, "accuracy": 90.0, "status": "completed"})
    path = table_report.keep(made)
    (made.folder / "small.csv").unlink()
    acc, mrd, ipm = grid.read(path)
    other, of_another_seed = ipm | {"identity": "0" * 16}, acc | {"seed": 7, "identity": "1" * 16}
    store.write(path, grid.FIELDS, [acc, mrd, other, of_another_seed])
    again = small()
    dropped = again.outdated(grid.read(path))
    assert dropped == [other, of_another_seed]
    again.drop(dropped)
    assert [cell.title for cell in again.missing(again.cells(["BOBA"], ["Acc", "IPM"], [0]))] == ["IPM, BOBA, seed 0"]
    table_report.keep(again)
    assert len(grid.read(path)) == 4  # not yet measured anew
    table_report.keep(again, dropped)
    assert grid.read(path) == [acc, mrd]


def test_grids_elsewhere_keep_each_others_cells(small, tmp_path):
    """Both began before the other had kept anything."""
    first, second = small({("BOBA", "Acc", 0): 90.0}), small()
    second.records.clear()
    put(second, ("Average", "IPM"), 0, [(10, 12.5)])
    table_report.keep(first)
    rows = grid.read(table_report.keep(second))
    assert {(row["row"], row["accuracy"]) for row in rows} == {("BOBA", 90.0), ("Average", 12.5)}


def test_the_report(small):
    made = small({key: 91.6 for key in everything() if key[1] != "LIE" or key[0] == "BOBA"})
    text = whole(made)
    assert text.startswith("# A small table\n\nNobody. Measured by `python scripts/reproduce.py small`\n")
    assert "seeds 0, 1; 10 runs, 16 min 40 s of training." in text
    assert "| BOBA | **91.6** (0.0) −0.9*<br>92.5 (0.1) | **0.0** (0.0) −1.3<br>1.3 (1.7) |" in text
    assert "| BOBA is best | not measured yet | 1 not measured |" in text
    assert "## Apart from the paper: 4 of 6 cells" in text
    rows = [line for line in text.splitlines() if line.startswith("|") and "<br>" in line]
    assert {line.count("|") for line in rows} == {7}
    noted = whole(small(claims=[SMALL["claims"][0] | {"text": "max |x| is best", "note": "a note"}]))
    assert r"| max \|x\| is best | not measured yet | 1 not measured; a note |" in noted
    empty = whole(small(base=SMALL["base"] + " server.lr=0.3"))
    assert "0 of 9 cells measured." in empty
    assert "<br>" not in empty
    assert "its accuracy counts as chance; `?`" in whole(small(everything(), chance="nan"))


def test_rows_that_no_paper_prints_are_shown_and_counted_before_they_are_measured(small):
    rows = SMALL["rows"] | {"Mine": "aggregator=krum"}
    text = whole(small({("BOBA", "IPM", 0): 91.0}, rows=rows))
    assert "1 of 14 cells measured" in text  # 9 printed, 5 of one's own
    assert "| Mine | · |" in text


def test_kept_cells_need_no_run(small, tmp_path):
    made = small(everything(90.123456789))
    assert table_report.keep(made) == tmp_path / "tables" / "measured" / "small.csv"
    (made.folder / "small.csv").unlink()
    again = small()
    assert again.missing(again.cells(["Average", "BOBA"], list(SMALL["columns"]), [0, 1])) == []
    assert again.mean("BOBA", "Wst") == pytest.approx(90.1235)
    assert again.mean("BOBA", "MRD") == 0.0
    before = (tmp_path / "tables" / "measured" / "small.csv").read_text()
    table_report.keep(again)
    assert (tmp_path / "tables" / "measured" / "small.csv").read_text() == before


def test_scale_multiplies_the_rounds_and_the_schedules(small, tmp_path):
    table = Table("small", SMALL | {"base": "experiment=boba_mnist"})
    made = Grid(table, 0.1, ["client.batch_size=8"], [0], tmp_path)
    overrides = made.compose(made.cell(("BOBA", "IPM"), 0)).overrides
    expected = ("trainer.max_steps=20", "schedule.lr_lambda.start=10", "schedule.lr_lambda.interval=1", "seed=0")
    assert overrides[-4:] == expected
    assert made.stem == "small_scale_0.1_client.batch_size=8"
    assert "**Not the paper's setting: `rounds times 0.1`, `client.batch_size=8`.**" in whole(made)
    given = Table("small", SMALL | {"base": "experiment=raga_mnist_lenet"})
    made = Grid(given, 0.1, [], [0], tmp_path)
    run = made.compose(made.cell(("BOBA", "IPM"), 0))
    assert run.overrides[-2:] == ("trainer.max_steps=50", "seed=0")


def test_rules_are_told_a_multiple_of_those_who_attack_in_a_round(small, tmp_path):
    """Half of the 15 attackers take part: 7.5 times 1.5 is 11.25."""
    table = Table("small", SMALL | {"base": SMALL["base"] + " federation.participation=0.5"})
    made = Grid(table, 1.0, [], [0], tmp_path, told=1.5)
    assert made.compose(made.cell(("BOBA", "IPM"), 0)).overrides[-2:] == ("f=11", "seed=0")
    assert made.stem == "small_told_1.5"
    assert "`rules are told 1.5 times as many attackers as there are`" in whole(made)
    assert "reproduce.py small --told=1.5`" in whole(made)
    counted = Table("small", SMALL | {"base": SMALL["base"] + " federation.participation=23"})  # a fifth of 115
    made = Grid(counted, 1.0, [], [0], tmp_path, told=2.0)
    assert made.compose(made.cell(("BOBA", "IPM"), 0)).overrides[-2:] == ("f=6", "seed=0")


@pytest.mark.drawn
@pytest.mark.parametrize("changes", [{}, {"published": {}}, {"published": {}, "x": "Attack"}])
def test_a_picture_of_what_is_measured(small, changes, tmp_path):
    assert table_report.figure(small(**changes)) is None
    picture = table_report.figure(small(everything(), **changes))
    picture.savefig(tmp_path / "picture.png")
    axes = picture.axes[0]
    labels = [text.get_text() for text in picture.legends[0].get_texts()]
    if "x" in changes:
        assert labels == ["Average", "BOBA"]
        assert [text.get_text() for text in axes.get_xticklabels()] == ["Acc", "IPM", "LIE"]
    elif "published" in changes:
        assert labels == ["Acc", "IPM", "LIE"]
        assert [text.get_text() for text in axes.get_yticklabels()] == ["Average", "BOBA"]
    else:
        assert labels == ["Acc", "IPM", "LIE", "MRD"]
        assert [text.get_text() for text in axes.get_yticklabels()] == ["Average", "BOBA"]


@pytest.mark.parametrize(("interval", "half"), [("false", 50**0.5), ("true", 12.7062047 * 5)])
@pytest.mark.parametrize("x", [{}, {"x": "Attack"}])
def test_bars_reach_as_far_as_the_text_says(small, x, interval, half):
    """Of 80 and 90; Student's t of one degree of freedom is 12.706."""
    accuracies = everything() | {("BOBA", "IPM", 0): 80.0, ("BOBA", "IPM", 1): 90.0}
    axes = table_report.figure(small(accuracies, published={}, interval=interval, **x)).axes[0]
    said = " ".join((axes.get_ylabel() if x else axes.get_xlabel()).split())
    assert said.endswith("bars: 95 % interval of the mean" if interval == "true" else "bars: standard deviation")
    ends = [segment[:, int(bool(x))] for drawn in axes.containers for segment in drawn.lines[2][0].get_segments()]
    assert max(high - low for low, high in ends) == pytest.approx(2 * half)


def test_points_of_one_name_are_side_by_side(small):
    axes = table_report.figure(small(everything(), published={})).axes[0]
    places = [place for drawn in axes.containers for place in drawn.lines[0].get_ydata()]
    assert len(set(places)) == len(places)
    assert {round(place) for place in places} == {0, 1}


def test_one_seed_has_no_bars(small):
    axes = table_report.figure(small({("BOBA", "IPM", 0): 80.0}, published={})).axes[0]
    assert "bars" not in axes.get_xlabel()


def test_twins_stand_beside_their_runs(small):
    """The twin of BOBA under IPM is 12 points away: the interval of two seeds that are 2 apart is 12.7 on each side."""
    made = small(everything() | {("BOBA", "IPM", 1): 92.0, ("BOBA", "LIE", 1): 91.0, ("Average", "LIE", 1): 90.5})
    assert table_report.instrument(made, table_report.pairs(made)) == []
    for place, accuracy in {("BOBA", "IPM"): 78.0, ("BOBA", "LIE"): 90.0, ("Average", "LIE"): 86.0}.items():
        put(made, place, 0, [(10, accuracy)], twin=1)
    assert {place: (pair.apart, pair.far) for place, pair in table_report.pairs(made).items()} == {
        ("BOBA", "IPM"): (12.0, False),
        ("BOBA", "LIE"): (0.0, False),
        ("Average", "LIE"): (4.0, True),  # 3.2 on each side
    }
    page = whole(made)
    assert page.count("‡") == 2  # in the cell and in the legend
    assert "**90.2** (0.4) −2.2*‡<br>92.4 (0.1)" in page
    assert "Twins of 3 cells: |run - twin| median 4.0, 95th percentile 11.2 points; farther than the seeds" in page
    assert "Average, LIE 4.0" in table_report.terminal(made, ["BOBA"], ["IPM"])


def test_twins_say_nothing_of_claims_without_a_verdict(small):
    made = small({("Average", "LIE", 0): 90.0})
    put(made, ("Average", "LIE"), 0, [(10, 90.0)], twin=1)
    lines = table_report.instrument(made, table_report.pairs(made))
    assert lines[1] == "These numbers can carry their conclusions: rounding moves a run by less than 1.0 points."


def test_a_claim_that_turns_with_the_twins_is_named(small):
    made = small({place: accuracy for place, accuracy in everything().items() if place[2] == 0})
    put(made, ("BOBA", "IPM"), 0, [(10, 89.9)], twin=1)
    lines = table_report.instrument(made, table_report.pairs(made))
    assert lines[1] == "These numbers cannot carry what turns with twins in place of runs: BOBA is best."
