"""Pictures of a run: what is drawn, not how it looks."""

import csv
import io

import numpy as np
import pytest

from lightning_fl.plot import BYZANTINE, HONEST, recall_curves, trust_weights

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


def test_classes_of_two_digits_stand_in_their_order_and_have_their_own_line():
    row = {"round": 1, "accuracy": 0.5} | {f"recall/{z}": z / 100 for z in range(12)}
    drawn = lines(recall_curves([row], ""))
    assert list(drawn) == [*(f"class {z}" for z in range(12)), "accuracy"]
    assert drawn["class 11"][1] == pytest.approx([11])
    looks = {(line.get_linestyle(), str(line.get_color())) for line in recall_curves([row], "").axes[0].lines}
    assert len(looks) == 13


def test_many_classes_are_not_all_named():
    row = {"round": 1, "accuracy": 0.5} | {f"recall/{z}": 0.5 for z in range(100)}
    figure = recall_curves([row], "")
    assert len(figure.axes[0].lines) == 101
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["accuracy"]


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
    # 5 to 95 % of 10, 20, 30 by linear interpolation: 11 to 29; of 0, 50, 50: 5 to 50.
    band = next(c for c in figure.axes[0].collections if c.get_label() == "honest, 5 to 95 %")
    corners = {(float(x), round(float(y), 6)) for x, y in band.get_paths()[0].vertices}
    assert corners == {(1, 11), (1, 29), (2, 5), (2, 50)}


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
