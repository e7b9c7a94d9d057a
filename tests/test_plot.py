"""Pictures of a run: what is drawn, not how it looks."""

import csv
import io

import matplotlib as mpl
import numpy as np
import pytest

from lightning_fl import DataError, plot
from lightning_fl.plot import (
    BYZANTINE,
    HONEST,
    client_weights,
    kappas,
    label_distributions,
    recall_curves,
    trust_weights,
)
from lightning_fl.plot._parts import height
from lightning_fl.plot.tournament import outcomes

pytestmark = pytest.mark.drawn
METRICS = [
    {"round": 1, "loss": 0.7},
    {"round": 2, "loss": 0.6, "accuracy": 0.5, "recall/0": 1.0, "recall/1": 0.0},
    {"round": 3, "loss": 0.5},
    {"round": 4, "loss": 0.4, "accuracy": 0.75, "recall/0": 0.9, "recall/1": 0.6},
]
# Three honest clients and two Byzantine ones.
WEIGHTS = [
    {"round": 1, "0": 0.1, "1": 0.2, "2": 0.3, "3": 0.2, "4": 0.2},
    {"round": 2, "0": 0.0, "1": 0.5, "2": 0.5, "3": 0.0, "4": 0.0},
]


def from_file(rows):
    """The rows as a CSV file gives them back: text, and "" for what is missing."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    file = io.StringIO()
    writer = csv.DictWriter(file, columns)
    writer.writeheader()
    writer.writerows(rows)
    file.seek(0)
    return list(csv.DictReader(file))


def lines(figure):
    """Each labelled line's points."""
    return {
        line.get_label(): (np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist())
        for line in figure.axes[0].lines
        if not line.get_label().startswith("_")  # beside the names
    }


@pytest.mark.parametrize("rows", [METRICS, from_file(METRICS)], ids=["memory", "file"])
def test_recall_of_each_class_and_accuracy_in_percent(rows):
    figure = recall_curves(rows, "Boba, 15 Ipm")
    drawn = lines(figure)
    assert drawn.keys() == {"class 0", "class 1", "accuracy"}
    assert drawn["class 0"] == ([2, 4], pytest.approx([100, 90]))
    assert drawn["class 1"] == ([2, 4], pytest.approx([0, 60]))
    assert drawn["accuracy"] == ([2, 4], pytest.approx([50, 75]))
    axes = figure.axes[0]
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == (
        "Boba, 15 Ipm",
        "Round",
        "Recall of each class (%)",
    )


def test_what_the_attack_measures_is_drawn_beside_recall():
    rows = [METRICS[1] | {"attack/success_rate": 0.25}, METRICS[3]]
    drawn = lines(recall_curves(rows, ""))
    assert list(drawn) == ["class 0", "class 1", "accuracy", "attack success rate"]
    assert drawn["attack success rate"] == ([2, 4], [25, pytest.approx(np.nan, nan_ok=True)])


def test_classes_of_two_digits_stand_in_their_order_and_have_their_own_line():
    row = {"round": 1, "accuracy": 0.5} | {f"recall/{z}": z / 100 for z in range(12)}
    drawn = lines(recall_curves([row], ""))
    assert list(drawn) == [*(f"class {z}" for z in range(12)), "accuracy"]
    assert drawn["class 11"][1] == pytest.approx([11])
    named = [line for line in recall_curves([row], "").axes[0].lines if not line.get_label().startswith("_")]
    assert len({(line.get_linestyle(), str(line.get_color())) for line in named}) == 13


@pytest.mark.parametrize("c", [1, 10, 20])
def test_classes_are_named_beside_their_last_points_and_told_apart_without_colours(c, tmp_path):
    """Names keep clear of each other, inside the axes' height, in the order of the ends."""
    values = np.random.default_rng(0).integers(0, 4, c) / 3  # several end in the same place
    rows = [{"round": t, "accuracy": 0.5} | {f"recall/{z}": v for z, v in enumerate(values)} for t in range(50)]
    figure = recall_curves(rows, "")
    (axes,) = figure.axes
    named = [(text.get_position()[1], text.get_text()) for text in axes.texts]
    heights = [y for y, _ in named]
    assert sorted(name for _, name in named) == sorted(["accuracy", *(f"class {z}" for z in range(c))])
    assert min(np.diff(heights), default=6) > 4.5
    assert min(heights) >= -2
    assert max(heights) <= 102
    ends = {f"class {z}": 100 * v for z, v in enumerate(values)} | {"accuracy": 50}
    assert [ends[name] for _, name in named] == sorted(ends.values())
    drawn = [line for line in axes.lines if not line.get_label().startswith("_")]
    looks = {(line.get_marker(), line.get_linestyle(), line.get_linewidth()) for line in drawn}
    assert len(looks) == c + 1
    figure.savefig(tmp_path / "recall.png")


def test_of_many_classes_the_spread_is_drawn():
    rows = [{"round": t, "accuracy": 0.5} | {f"recall/{z}": z / 100 for z in range(101)} for t in (5, 10)]
    drawn = lines(recall_curves(rows, ""))
    assert drawn == {
        "lowest recall": ([5, 10], [0, 0]),
        "median": ([5, 10], pytest.approx([50, 50])),
        "accuracy": ([5, 10], [50, 50]),
    }
    bands = {band.get_label(): band.get_paths()[0].vertices for band in recall_curves(rows, "").axes[0].collections}
    assert {round(float(y)) for _, y in bands["all 101 classes"]} == {0, 100}
    assert {round(float(y)) for _, y in bands["the middle half of them"]} == {25, 75}


def test_a_single_evaluation_is_a_point():
    def markers(rows):
        return {line.get_label(): line.get_marker() for line in recall_curves(rows, "").axes[0].lines}

    assert "None" not in [markers(METRICS[1:2])[name] for name in ("class 0", "class 1", "accuracy")]
    many = [{"round": t, "accuracy": 0.5, "recall/0": 0.5} for t in range(1, 50)]
    assert markers(many)["accuracy"] == "None"


@pytest.mark.parametrize("rows", [[], [{"round": 1, "loss": 0.5}]])
def test_nothing_evaluated_is_an_empty_picture(rows, tmp_path):
    figure = recall_curves(rows, "")
    assert lines(figure)["accuracy"] == ([], [])
    figure.savefig(tmp_path / "empty.png")


@pytest.mark.parametrize("rows", [WEIGHTS, from_file(WEIGHTS)], ids=["memory", "file"])
def test_honest_and_byzantine_clients_apart(rows):
    figure = trust_weights(rows, [3, 4], "title")
    drawn = lines(figure)
    assert drawn["honest, median of 3"] == ([1, 2], pytest.approx([20, 50]))
    assert drawn["Byzantine, median of 2"] == ([1, 2], pytest.approx([20, 0]))
    assert drawn["equal shares"][1] == pytest.approx([20, 20])
    colours = {line.get_label().split(",")[0]: line.get_color() for line in figure.axes[0].lines}
    assert (colours["honest"], colours["Byzantine"]) == (HONEST, BYZANTINE)
    band = next(c for c in figure.axes[0].collections if c.get_label() == "honest, least to most")
    corners = {(float(x), round(float(y), 6)) for x, y in band.get_paths()[0].vertices}
    assert corners == {(1, 10), (1, 30), (2, 0), (2, 50)}


def test_without_byzantine_clients_there_is_one_line():
    assert lines(trust_weights(WEIGHTS, [], "")).keys() == {"honest, median of 5", "equal shares"}


def test_clients_absent_in_a_round_are_skipped():
    rows = [{"round": 1, "0": 0.5, "1": 0.5}, {"round": 2, "0": 0.25, "2": 0.75}, {"round": 3, "1": 0.0, "2": 1.0}]
    drawn = lines(trust_weights(rows, [2], ""))
    assert drawn["honest, median of 2"] == ([1, 2, 3], pytest.approx([50, 25, 0]))
    assert drawn["Byzantine, median of 1"] == ([2, 3], pytest.approx([75, 100]))


def test_no_rows_are_an_empty_picture(tmp_path):
    figure = trust_weights([], [1], "")
    figure.savefig(tmp_path / "empty.png")
    assert list(lines(figure)) == ["equal shares"]


def test_equal_shares_are_of_those_present():
    rows = [{"round": 1, "0": 0.5, "1": 0.5}, {"round": 2, "2": 0.5, "3": 0.5}]
    assert lines(trust_weights(rows, [], ""))["equal shares"][1] == [50, 50]


def cells(axes):
    """The heat map's table."""
    return np.ma.filled(axes.images[0].get_array().astype(float), np.nan)


def texts(axes):
    """What is written into the axes, with its place."""
    return {(round(text.get_position()[0], 2), text.get_position()[1]): text.get_text() for text in axes.texts}


def ticks(axis):
    return [text.get_text() for text in axis.get_ticklabels()]


def test_the_largest_drop_stands_out():
    axes = plot.recall_drops([0.5, 0.25, 1.0], [0.75, 1.0, 0.5], "run").axes[0]
    bars = {round(bar.get_x() + bar.get_width() / 2): (bar.get_height(), bar.get_facecolor()) for bar in axes.patches}
    assert {z: height for z, (height, _) in bars.items()} == {0: 25, 1: 75, 2: -50}
    assert bars[1][1] != bars[0][1] == bars[2][1]
    assert [text.get_text() for text in axes.figure.legends[0].get_texts()] == [
        "largest: 75.0, class 1",
        "other classes",
    ]


def test_classes_without_test_samples_have_no_curve_and_no_bar():
    rows = [{"round": t, "accuracy": 0.5, "recall/0": 0.25, "recall/2": 0.75} for t in (1, 2)]
    drawn = lines(recall_curves(rows, ""))
    assert drawn["class 2"] == ([1, 2], [75, 75])
    assert "class 1" not in drawn
    axes = plot.recall_drops([None, 0.5, 0.25], [1.0, 0.75, None], "").axes[0]
    assert [(bar.get_x() + bar.get_width() / 2, bar.get_height()) for bar in axes.patches] == [(1, 25)]
    np.testing.assert_allclose(cells(plot.recalls({"a": [0.5, None]}, "").axes[0]), [[50, np.nan]])


def test_classes_have_their_names():
    names = ["ant", "bee", "a very long name of a class"]
    short = ["ant", "bee", "a very long name…"]
    rows = [{"round": t, "accuracy": 0.5} | {f"recall/{z}": 0.5 for z in range(3)} for t in (1, 2)]
    assert set(short) < lines(recall_curves(rows, "", names)).keys()
    axes = plot.recall_drops([0.5, 0.25, 1.0], [0.75, 1.0, 0.5], "", names).axes[0]
    assert ticks(axes.xaxis) == short
    assert axes.get_legend_handles_labels()[1][0] == "largest: 75.0, bee"
    axes = plot.confusion([[3, 1, 0], [0, 1, 0], [0, 9, 1]], "", names).axes[0]
    assert ticks(axes.xaxis) == ticks(axes.yaxis) == short
    assert ticks(plot.recalls({"a": [0.5, 0.5, None]}, "", names).axes[0].xaxis) == short
    assert ticks(plot.partition([[1, 0, 2], [0, 3, 0]], [1], "", names).axes[0].yaxis) == short
    clients = [{"client": 0, "byzantine": 0, "samples/0": 1, "samples/1": 3}]
    axes = plot.client_weights([{"round": 1, "0": 1.0}], clients, [], "", names).axes[0]
    assert "bee" in " ".join(ticks(axes.yaxis))


def test_no_drop_at_all_is_zero():
    (first, _) = plot.recall_drops([0.5, 0.5], [0.25, 0.25], "").legends[0].get_texts()
    assert first.get_text() == "largest: 0.0, class 0"


def test_confusion_shows_shares_of_the_true_class():
    figure = plot.confusion([[3, 1, 0], [0, 0, 0], [0, 199, 1]], "run")
    axes, bar = figure.axes
    np.testing.assert_allclose(cells(axes), [[75, 25, 0], [np.nan] * 3, [0, 99.5, 0.5]])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Predicted class", "True class")
    assert {place: text for place, text in texts(axes).items() if text} == {
        (0, 0): "75",
        (1, 0): "25",
        (1, 2): "100",
    }
    assert bar.get_ylabel() == "Share of the true class (%); grey: no test sample"


def test_confusion_of_many_classes_has_no_numbers():
    axes, bar = plot.confusion(np.eye(21, dtype=int).tolist(), "").axes
    assert not axes.texts
    assert bar.get_ylabel() == "Share of the true class (%)"


def test_accuracy_of_several_runs():
    rows = [*METRICS, {"round": 6, "accuracy": 0.1}]
    axes = plot.accuracies({"boba, ipm": METRICS, "average, ipm": rows}, "two", diverged=["average, ipm"]).axes[0]
    drawn = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert drawn["boba, ipm"] == [50, 75]
    assert drawn["average, ipm (diverged)"] == [50, 75, 10]
    cross = axes.lines[-1]
    assert (cross.get_marker(), list(cross.get_xdata())) == ("X", [6])
    (legend,) = axes.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["boba, ipm", "average, ipm (diverged)"]


@pytest.mark.parametrize("n", [2, 7, 8, 30])
def test_runs_look_different(n):
    axes = plot.accuracies({str(i): METRICS for i in range(n)}, "").axes[0]
    assert len({(str(line.get_color()), line.get_linestyle()) for line in axes.lines}) == n


def test_runs_without_evaluation_are_named_all_the_same():
    axes = plot.accuracies({"a": [], "b": METRICS}, "", diverged=["a"]).axes[0]
    assert [line.get_label() for line in axes.lines] == ["a (diverged)", "b"]


def test_success_rates_of_backdoors():
    rows = [{"round": t, "accuracy": 0.5, "attack/success_rate": t / 10} for t in (2, 4)]
    axes = plot.success_rates({"krum": rows, "average": rows[:1]}, "two", diverged=["average"]).axes[0]
    drawn = {line.get_label(): np.asarray(line.get_ydata()).tolist() for line in axes.lines}
    assert drawn["krum"] == pytest.approx([20, 40])
    assert drawn["average (diverged)"] == pytest.approx([20])
    assert axes.get_ylabel() == "Attack success rate (%)"


def test_a_run_has_one_colour_in_all_pictures():
    runs = {"ipm": METRICS, "badnets": [row | {"attack/success_rate": 0.5} for row in METRICS]}
    every, some = (draw(runs, "two").axes[0].lines for draw in (plot.accuracies, plot.success_rates))
    assert [line.get_label() for line in some] == ["badnets"]
    assert some[0].get_color() == every[1].get_color() != every[0].get_color()


@pytest.mark.parametrize(("status", "label"), [("unfinished", "unfinished"), ("completed", "no mrd")])
def test_runs_of_a_sweep_without_a_number_are_marked(status, label):
    rows = [{"lr": 0.1, "mrd": 0.5, "status": "completed"}, {"lr": 0.2, "mrd": None, "status": status}]
    axes = plot.sweep(rows, ["lr"], "mrd", "x")[0].axes[0]
    assert label in [line.get_label() for line in axes.lines]
    assert 0.2 in [place for line in axes.lines for place in np.atleast_1d(line.get_xdata())]


def test_recall_by_run():
    axes = plot.recalls({"boba": [1.0, 0.5], "average": "diverged"}, "two").axes[0]
    np.testing.assert_allclose(cells(axes), [[100, 50], [np.nan, np.nan]])
    assert {place: text for place, text in texts(axes).items() if text} == {
        (0, 0): "100",
        (1, 0): "50",
        (0.5, 1): "diverged",
    }
    assert ticks(axes.yaxis) == ["boba", "average"]


def test_max_recall_drop_by_run():
    axes = plot.drops({"boba": 0.125, "average": "diverged"}, "two").axes[0]
    assert [bar.get_width() for bar in axes.patches] == [12.5]
    assert list(texts(axes).values()) == ["12.5", "diverged"]
    assert ticks(axes.yaxis) == ["boba", "average"]


def test_weight_by_run_is_a_share():
    axes = plot.shares({"boba": (0.75, 0.25), "none": (0.0, 0.0), "median": "none: not a weighting"}, "three").axes[0]
    assert [bar.get_width() for bar in axes.patches] == [75, 25, 0, 0]
    assert list(texts(axes).values()) == ["25.0", "0.0", "none: not a weighting"]
    assert axes.get_xlim() == (0, 100)


def test_a_weight_that_turns_updates_around_points_left():
    axes = plot.shares({"bygars": (0.75, -0.25), "boba": (0.5, 0.5)}, "two").axes[0]
    assert [(bar.get_x(), bar.get_width()) for bar in axes.patches] == [(0, 75), (0, -25), (0, 50), (50, 50)]
    assert axes.get_xlim() == (-100, 100)


def test_partition_has_a_column_for_each_client_and_marks_byzantine_ones():
    figure = plot.partition([[4, 0], [1, 3], [0, 2]], [1, 3, 4], "mnist")
    axes = figure.axes[0]
    np.testing.assert_allclose(cells(axes), [[4, 1, np.nan, np.nan, np.nan], [np.nan, 3, 2, np.nan, np.nan]])
    assert [(patch.get_x(), patch.get_width()) for patch in axes.patches] == [(0.5, 1), (2.5, 2)]
    assert [text.get_text() for legend in figure.legends for text in legend.get_texts()] == ["Byzantine"]


def test_partition_without_attack_has_no_legend(tmp_path):
    figure = plot.partition([[4, 0], [1, 3]], [], "mnist")
    assert not figure.legends
    assert not figure.axes[0].patches
    figure.savefig(tmp_path / "partition.png")


def test_long_titles_and_labels_are_wrapped():
    axes = plot.drops({"a " * 40: 0.5}, "b " * 100 + "\nc").axes[0]
    assert max(map(len, axes.get_title().split("\n"))) <= 64
    assert axes.get_title().endswith("\nc")
    assert max(map(len, ticks(axes.yaxis)[0].split("\n"))) <= 30


def swept(parameters, accuracy, status="completed"):
    return parameters | {"accuracy": accuracy, "status": status}


def test_sweep_of_a_number_and_a_word_has_a_line_of_means_for_each_word():
    rows = [
        swept({"f": f, "aggregator": rule, "seed": seed}, base + 0.1 * seed)
        for f, rule, base in [(1, "krum", 0.5), (10, "krum", 0.6), (1, "boba", 0.7), (10, "boba", 0.8)]
        for seed in (0, 1)
    ]
    rows[-2:] = [swept({"f": 10, "aggregator": "boba", "seed": seed}, None, "diverged") for seed in (0, 1)]
    (figure,) = plot.sweep(rows, ["f", "aggregator", "seed"], "accuracy", "x")
    (axes,) = figure.axes
    drawn = [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines]
    assert ([1.0, 10.0], pytest.approx([55.0, 65.0])) in drawn
    assert ([1.0, 10.0], pytest.approx([75.0, np.nan], nan_ok=True)) in drawn
    crosses = [line for line in axes.lines if line.get_marker() == "x" and len(line.get_xdata())]
    assert {float(line.get_xdata()[0]) for line in crosses} == {10.0}
    assert all(float(line.get_ydata()[0]) < 50 for line in crosses)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["krum", "boba", "diverged"]
    assert figure.legends[0].get_title().get_text() == "aggregator"


def test_sweep_of_two_words_or_two_numbers_is_a_heat_map_of_means():
    rows = [
        swept({"f": f, "b": b, "seed": s}, 0.1 * f + 0.01 * b + 0.02 * s)
        for f in (0, 5)
        for b in (1, 2, 3)
        for s in (0, 1)
    ]
    rows[0] = swept({"f": 0, "b": 1, "seed": 0}, None, "diverged")
    rows[-2:] = [swept({"f": 5, "b": 3, "seed": s}, None, "failed") for s in (0, 1)]
    axes = plot.sweep(rows, ["f", "b", "seed"], "accuracy", "x")[0].axes[0]
    np.testing.assert_allclose(cells(axes), [[4, np.nan], [3, 53], [3, 52]])
    assert axes.get_xlabel() == "f"
    assert ticks(axes.yaxis) == ["3", "2", "1"]
    assert {"failed", "3.0*"} <= {text.get_text() for text in axes.texts}
    rows = [swept({"rule": r, "attack": a}, 0.5) for r in ("krum", "boba") for a in ("lie", "ipm")]
    axes = plot.sweep(rows, ["rule", "attack"], "accuracy", "x")[0].axes[0]
    assert ticks(axes.yaxis) == ["krum", "boba"]


def test_sweep_of_many_parameters_has_a_panel_for_each(tmp_path):
    rows = [
        swept({"lr": 10.0 ** (k / 5 - 3), "on": k % 2 == 0, "alpha": [1, 2, "inf"][k % 3], "k": k}, k / 20)
        for k in range(20)
    ]
    panels = [figure.axes[0] for figure in plot.sweep(rows, ["lr", "on", "alpha", "k"], "accuracy", "x")]
    assert [axes.get_xlabel() for axes in panels] == ["lr", "on", "alpha", "k"]
    assert [axes.get_xscale() for axes in panels] == ["log", "linear", "linear", "linear"]
    assert ticks(panels[1].xaxis) == ["True", "False"]
    assert ticks(panels[2].xaxis) == ["1", "2", "inf"]
    assert len({axes.get_ylim() for axes in panels}) == 1
    panels[0].figure.savefig(tmp_path / "x.png")


def test_sweep_of_drawn_numbers_has_an_axis_of_their_distribution_and_no_means():
    rows = [swept({"lr": 0.1 + k, "a": 0.2 * k}, k / 20) for k in range(5)]
    figures = plot.sweep(rows, ["lr", "a"], "accuracy", "x", {"lr": "log", "a": "linear"})
    panels = [figure.axes[0] for figure in figures]
    assert [axes.get_xscale() for axes in panels] == ["log", "linear"]
    assert [[len(line.get_xdata()) for line in axes.lines] for axes in panels] == [[5], [5]]
    assert not set(panels[1].get_xticks()) <= {row["a"] for row in rows}


def test_against_the_paper_is_a_difference_beside_each_row():
    cells = [
        plot.Compared("BOBA", "IPM", 91.6, 0.2, [91.0, 92.0], False),
        plot.Compared("CooMed", "IPM", 42.0, 3.7, [29.0], True),
        plot.Compared("CooMed", "LIE", 89.6, 0.3, [89.6], False),
    ]
    axes = plot.against_paper(cells, "accuracy, %", "x").axes[0]
    assert axes.get_xlabel().split() == ["Measured", "less", "the", "paper's:", "accuracy,", "%"]
    assert ticks(axes.yaxis) == ["BOBA", "CooMed"]
    drawn = {
        (round(float(x), 6), round(float(y)), line.get_markerfacecolor() == "white")
        for line in axes.lines
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
        if line.get_marker() not in ("None", "")
    }
    assert drawn == {(-0.1, 0, True), (-13.0, 1, False), (0.0, 1, True)}


@pytest.mark.parametrize("parameters", [["f"], ["seed"], []])
def test_sweep_without_any_result_is_a_picture_too(tmp_path, parameters):
    rows = [swept({"f": 3, "seed": 1}, None, "unfinished"), swept({"f": 4, "seed": 2}, None, "failed")]
    plot.sweep(rows, parameters, "accuracy", "x")[0].savefig(tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 1000


def test_measured_kappa_beside_theorys_bound(tmp_path):
    rows = [{"round": t, "robustness/kappa": value} for t, value in [(1, 0.5), (2, 0.0), (3, np.inf), (4, 1.5)]]
    figure = kappas([*rows, {"round": 5}], 12.0, "title")
    drawn, (foot, top) = lines(figure), figure.axes[0].get_ylim()
    assert 0 < foot < 0.5
    assert top > 12
    assert drawn["measured, mean 0.667"] == ([1, 2, 3, 4], pytest.approx([0.5, foot, top, 1.5]))
    assert drawn["infinite"] == ([3], pytest.approx([top]))
    assert drawn["theory's bound, 12"][1] == [12, 12]
    figure.savefig(tmp_path / "kappas.png")


@pytest.mark.parametrize("values", [[], [0.0], [np.inf]])
@pytest.mark.parametrize("bound", [None, 0.0, np.inf])
def test_kappas_of_which_none_has_a_logarithm(values, bound, tmp_path):
    figure = kappas([{"round": 1, "robustness/kappa": value} for value in values], bound, "")
    assert (f"theory's bound, {bound or 0:g}" in lines(figure)) == (bound is not None)
    figure.savefig(tmp_path / "kappas.png")


# Client 0 holds most of class 1, clients 1 and 2 of class 0 (2 as many of class 1); 3 and 4 attack and hold nothing.
CLIENTS = [
    {"client": 0, "byzantine": 0, "samples/0": 1, "samples/1": 3, "estimate/0": 0.2, "estimate/1": 0.8},
    {"client": 1, "byzantine": 0, "samples/0": 4, "samples/1": 0, "estimate/0": 1.0, "estimate/1": 0.0},
    {"client": 2, "byzantine": 0, "samples/0": 2, "samples/1": 2},
    {"client": 3, "byzantine": 1, "estimate/0": -1.0, "estimate/1": 2.0},
    {"client": 4, "byzantine": 1, "estimate/0": 0.5, "estimate/1": 0.5},
]


def groups(axes):
    return {label.get_text(): place for label, place in zip(axes.get_yticklabels(), axes.get_yticks(), strict=True)}


@pytest.mark.parametrize("rows", [WEIGHTS, from_file(WEIGHTS)], ids=["memory", "file"])
def test_weights_of_clients_by_their_main_class(rows, tmp_path):
    figure = client_weights(rows, CLIENTS, [3, 4], "title")
    axes = figure.axes[0]
    assert cells(axes) == pytest.approx(np.array([[20, 50], [30, 50], [10, 0], [20, 0], [20, 0]]))
    assert groups(axes) == {"class 0": 0.5, "class 1": 2, "Byzantine": 3.5}
    assert [line.get_ydata()[0] for line in axes.lines] == [1.5, 2.5]
    assert axes.lines[-1].get_color() == BYZANTINE
    figure.savefig(tmp_path / "clients.png")


def test_weights_of_clients_of_whom_nothing_is_known(tmp_path):
    rows = [{"round": 1, "0": 0.5, "10": 0.5}, {"round": 2, "2": 1.5, "0": -0.5}]
    figure = client_weights(rows, [], [0], "")
    axes = figure.axes[0]
    assert cells(axes) == pytest.approx(np.array([[np.nan, 150], [50, np.nan], [50, -50]]), nan_ok=True)
    assert groups(axes) == {"honest": 0.5, "Byzantine": 2}
    assert axes.images[0].norm.vmin == -50
    figure.savefig(tmp_path / "clients.png")


def test_one_chosen_client_among_many_has_all_of_the_weight():
    rows = [{"round": 1, **{str(client): float(client == 7) for client in range(250)}}]
    norm = client_weights(rows, [], [], "").axes[0].images[0].norm
    assert (norm.vmin, norm.vmax) == (0, 100)


def test_rounds_without_weights_are_grey():
    rows = [{"round": t, "0": 0.5, "1": 0.5} for t in (2, 3, 9)]
    axes = client_weights(rows, [], [], "").axes[0]
    assert np.isnan(cells(axes)[0]).tolist() == [False, False, *[True] * 5, False]
    assert axes.images[0].get_extent()[:2] == [1.5, 9.5]
    assert "absent" in axes.figure.axes[1].get_ylabel()


def test_many_rounds_are_averaged():
    rows = [{"round": t + 1, "0": float(t % 2)} for t in range(1201)]
    axes = client_weights(rows, [], [], "").axes[0]
    table = cells(axes)
    assert axes.images[0].get_extent()[:2] == [0.5, 1203.5]  # the last column is for three rounds, too
    assert axes.get_xlim() == (0.5, 1201.5)
    assert table.shape == (1, 401)  # three rounds each: 0 1 0, 1 0 1, ...
    assert table[0, :2] == pytest.approx([100 / 3, 200 / 3])
    assert table[0, -1] == 0


def test_label_distributions_held_and_estimated(tmp_path):
    figure = label_distributions(CLIENTS, "title")
    left, right = figure.axes[:2]
    nan = np.nan
    assert cells(left) == pytest.approx(np.array([[100, 0], [50, 50], [25, 75], [nan, nan], [nan, nan]]), nan_ok=True)
    assert cells(right) == pytest.approx(np.array([[100, 0], [nan, nan], [20, 80], [-100, 200], [50, 50]]), nan_ok=True)
    assert groups(left) == {"class 0": 0.5, "class 1": 2, "Byzantine": 3.5}
    figure.savefig(tmp_path / "labels.png")
    label, whole = figure.axes[2].yaxis.label.get_window_extent(), figure.bbox
    assert whole.y0 <= label.y0 < label.y1 <= whole.y1


def test_a_picture_that_cannot_be_written_is_named(tmp_path):
    figure = plot.accuracies({"a": METRICS}, "")
    (tmp_path / "there").write_text("a file")
    with pytest.raises(DataError, match=r"there/x\.png cannot be written: File exists"):
        plot.save(figure, tmp_path / "there" / "x.png")


def test_a_picture_needs_no_tex(tmp_path, monkeypatch):
    """matplotlibrc has text.usetex for papers, and neither this machine nor labels such as a_b are ready for it."""
    monkeypatch.setenv("PATH", "")
    with mpl.rc_context({"text.usetex": True}):
        plot.save(recall_curves(METRICS, "trimmed_mean, 50 %"), tmp_path / "recall.png")
        plot.save(trust_weights(WEIGHTS, [3, 4], "a_b"), tmp_path / "weights.png")
        assert mpl.rcParams["text.usetex"]
    assert all((tmp_path / name).stat().st_size > 10_000 for name in ("recall.png", "weights.png"))


def test_the_colours_of_a_tournament_are_means():
    figure = outcomes({"krum": {"ipm": [50.0, 60.0]}, "median": {}}, ["ipm"], [], "x")
    axes = figure.axes[0]
    values = np.ma.filled(axes.images[0].get_array(), np.nan) if axes.images else axes.collections[0].get_array()
    np.testing.assert_equal(np.asarray(values, dtype=float).ravel(), [55.0, np.nan])


def test_rows_are_as_high_as_their_names():
    assert height(["a", "b"]) == pytest.approx(2 * (0.25 + 0.18))
