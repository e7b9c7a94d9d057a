"""Cells and their records; `test_grid` and `test_tournament` have those of tables and tournaments."""

import pytest

from lightning_fl.study.cell import Cell
from lightning_fl.study.study import Study

OVERRIDES = {"krum": ("aggregator=krum",), "mine": ("aggregator=krum",), "median": ("aggregator=median",)}


class Rules(Study):
    """A cell for each rule; Krum goes by two names."""

    labels = ("rule",)

    def cell(self, rule, seed):
        return Cell((rule,), OVERRIDES[rule], seed, rule)

    def cell_of(self, row):
        return self.cell(row["rule"], row["seed"]) if row["rule"] in OVERRIDES else None

    def points(self, labels, seed, twin=None):
        return None


@pytest.fixture
def study(tmp_path):
    return lambda: Rules(tmp_path / "cells.csv", ["rule", "seed", "status", "accuracy", "identity", "key"])


RECORD = {"status": "completed", "accuracy": 0.5, "identity": "x"}


def test_a_record_counts_for_all_cells_that_ask_for_the_same(study):
    one, cells = study(), [study().cell(rule, seed) for seed in (0, 1) for rule in OVERRIDES]
    assert [(cell.title, cell.seed) for cell in one.missing(cells)] == [
        *[("krum", 0), ("median", 0), ("krum", 1), ("median", 1)],
    ]
    one.add(one.cell("mine", 1), RECORD)
    at = {"rule": "mine", "seed": 1, "twin": None}
    assert one.row(one.cell("krum", 1)) == RECORD | at | {"key": one.key(one.cell("krum", 1))}
    assert [(cell.title, cell.seed) for cell in one.missing(cells)] == [("krum", 0), ("median", 0), ("median", 1)]


def test_what_another_process_adds_is_found(study):
    one, other = study(), study()
    other.add(other.cell("median", 0), RECORD)
    one.refresh()
    assert one.row(one.cell("median", 0))["accuracy"] == 0.5


def test_what_other_settings_measured_does_not_count_unless_it_is_kept(study):
    one = study()
    old = RECORD | {"rule": "median", "seed": 0, "key": "of other settings"}
    assert not one.put(old)
    assert not one.put(old | {"rule": "gone"}, kept=True)
    assert one.row(one.cell("median", 0)) is None
    assert one.put(old, kept=True)
    assert one.row(one.cell("median", 0)) == old
