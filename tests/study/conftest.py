"""The small table as a grid."""

from copy import deepcopy
from functools import cache

import pytest

from lightning_fl.run.check import checked
from lightning_fl.study import factors, grid, table_report
from lightning_fl.study.grid import Grid
from lightning_fl.study.table import Table
from tests.study.small import SMALL, finish


@cache
def composed(*overrides):
    return checked(overrides)


@pytest.fixture
def composed_once(monkeypatch):
    """Composing takes a tenth of a second; the same small table is composed again and again."""
    for module in (factors, grid):
        monkeypatch.setattr(module, "checked", lambda overrides: deepcopy(composed(*overrides)))


@pytest.fixture
def compositions(monkeypatch):
    """The overrides of what is composed."""
    found, compose = [], factors.checked
    for module in (factors, grid):
        monkeypatch.setattr(module, "checked", lambda overrides: found.append([*overrides]) or compose(overrides))
    return found


@pytest.fixture
def small(tmp_path, monkeypatch, composed_once):
    """A grid of the small table whose runs have the accuracies given: {(row, column, seed): percent}."""
    monkeypatch.setattr(grid, "TABLES", tmp_path / "tables")
    monkeypatch.setattr(table_report, "TABLES", tmp_path / "tables")

    def make(accuracies=(), diverged=(), **changes):
        made = Grid(Table("small", SMALL | changes), 1.0, [], [0, 1], tmp_path / "runs")
        for (row, column, seed), accuracy in dict(accuracies).items():
            folder = made.plan[(row, column), seed].folder
            status = "diverged" if (row, column, seed) in diverged else "completed"
            finish(folder, [(10, accuracy)], status)
            made.look(made.plan[(row, column), seed])
        return made

    return make
