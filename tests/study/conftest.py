"""The small table as a grid."""

from copy import deepcopy
from functools import cache
from hashlib import sha256

import pytest

from lightning_fl.run.check import checked
from lightning_fl.study import grid, table_report
from lightning_fl.study.grid import Grid
from lightning_fl.study.table import Table
from tests.study.small import SMALL, finish


@cache
def composed(*overrides):
    return checked(overrides)


@pytest.fixture
def composed_once(monkeypatch):
    """Composing takes a tenth of a second; the same small table is composed again and again."""
    monkeypatch.setattr(grid, "checked", lambda overrides: deepcopy(composed(*overrides)))


def put(made, place, seed, evaluations, status="completed", recall=None, twin=None):
    """Let a cell's run have these (round, percent)."""
    cell = made.cell(place, seed, twin)
    folder = made.folder / sha256(repr(cell.command).encode()).hexdigest()[:16]
    finish(folder, evaluations, status, recall)
    made.add(cell, made.measure(folder))


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A grid of the small table whose runs have the accuracies given: {(row, column, seed): percent}."""
    monkeypatch.setattr(grid, "TABLES", tmp_path / "tables")
    monkeypatch.setattr(table_report, "TABLES", tmp_path / "tables")

    def make(accuracies=(), diverged=(), **changes):
        made = Grid(Table("small", SMALL | changes), 1.0, [], [0, 1], tmp_path / "runs")
        for (row, column, seed), accuracy in dict(accuracies).items():
            status = "diverged" if (row, column, seed) in diverged else "completed"
            put(made, (row, column), seed, [(10, accuracy)], status)
        return made

    return make
