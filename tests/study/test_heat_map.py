"""The best rule over two settings."""

import csv

import pytest

from lightning_fl import SettingError
from lightning_fl.study.compare import find
from lightning_fl.study.heat_map import HeatMap
from tests.study.test_compare import KRUM, LIE, run

# Accuracy in percent by f and alpha: of boba and krum, under IPM and LIE.
MEASURED = {
    (1, 0.5): {"boba": (80, 60), "krum": (70, 65)},
    (1, 1.0): {"boba": (90, 85), "krum": (95, 50)},
    (2, 0.5): {"boba": (90, None), "krum": (20, 30)},
    (2, 1.0): {"boba": (None, None), "krum": (None, 99)},
}


@pytest.fixture
def runs(tmp_path):
    for (f, alpha), rules in MEASURED.items():
        for rule, values in rules.items():
            for attack, value in zip([{}, {"adversary": LIE}], values, strict=True):
                changes = {
                    "federation__n_byzantine": f,
                    "aggregator__f": f,
                    "f": f,
                    "data__partition": {"alpha": alpha},
                }
                changes |= {"aggregator": KRUM | {"f": f}} if rule == "krum" else {}
                name = f"{f}{alpha}{rule}{len(attack)}"
                run(tmp_path / name, (value or 0) / 100, "completed" if value else "diverged", **changes, **attack)
    return find([tmp_path])


@pytest.mark.drawn
def test_each_cell_names_the_rule_that_is_best_under_its_worst_attack(runs, tmp_path):
    """Krum's 65 beats BOBA's 60; BOBA's 85 beats Krum's 50; with a run lost a rule is out, and with all of them '-'."""
    found = HeatMap(runs, "f", "data.partition.alpha")
    assert found.report().sections[0].rows == [["1", "65.0 (krum)", "85.0 (boba)"], ["2", "20.0 (krum)", "-"]]
    paths = found.write(tmp_path / "out")
    assert [path.name for path in paths] == [f"map.{ending}" for ending in ("md", "csv", "tex", "html", "png", "pdf")]
    with paths[1].open() as file:
        records = list(csv.reader(file))
    assert records[0] == ["panel", "f", "data.partition.alpha", "rule", "attack", "accuracy"]
    assert records[1:] == [
        ["", "1", "0.5", "krum", "lie", "65"],
        ["", "1", "1", "boba", "lie", "85"],
        ["", "2", "0.5", "krum", "ipm", "20"],
    ]


def test_a_map_needs_two_settings_beside_rule_and_attack(runs):
    for rows, columns in [("f", None), (None, None), ("aggregator", "f")]:
        with pytest.raises(SettingError, match="under its worst adversary and needs two other settings"):
            HeatMap(runs, rows, columns)
    with pytest.raises(SettingError, match=r"an axis needs a setting of the runs, got data\.partition\.beta"):
        HeatMap(runs, "f", "data.partition.beta")
