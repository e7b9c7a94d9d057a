"""Every cell that is kept can be found: its settings compose, and are those that it was measured with."""

import re

import pytest

from lightning_fl.study import grid
from lightning_fl.study.grid import Grid, read
from lightning_fl.study.table import TABLES, Table, names

FILES = sorted((TABLES / "measured").glob("*.csv"))


def kept(path, rows):
    """The grid that a file of scripts/tables/measured is of."""
    name = max((name for name in names() if f"{path.stem}_".startswith(f"{name}_")), key=len)
    options = re.fullmatch(r"(?:_scale_(?P<scale>[\d.]+))?(?P<more>.*)", path.stem.removeprefix(name))
    more = re.split(r"_(?=\w+\.\w)", options["more"])[1:]  # of settings with a dot
    table, scale = Table.load(name), float(options["scale"] or 1)
    cells = {(row["row"], row["column"]) for row in rows}
    made = Grid(table, scale, more, sorted({int(row["seed"]) for row in rows}), path.parent / "none", cells)
    assert made.stem == path.stem, f"{path.name} is not a name that --keep gives"
    return made


def wrong(path, rows):
    made = kept(path, rows)
    found = {(*cell, seed): run.folder.name for (cell, seed), run in made.plan.items()}
    for row in rows:
        cell = row["row"], row["column"], int(row["seed"])
        if found.get(cell) != row["identity"]:
            yield f"{path.stem}: {cell} was measured as {row['identity']} and is {found.get(cell, 'no cell')} now"


ADVICE = (
    "A setting that has come into the configuration with a default belongs into ADDED of lightning_fl/run/identity.py; "
    "a cell whose settings were changed on purpose is measured again (reproduce.py --keep --prune)."
)


def test_there_is_something():
    assert len(FILES) >= 9


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_files_first_row_has_its_name(path, composed_once, monkeypatch):
    rows = read(path)[:1]
    monkeypatch.setattr(grid, "read", lambda path: [])  # else every kept cell is composed
    assert not list(wrong(path, rows)), ADVICE


@pytest.mark.slow
def test_every_row_has_its_name(composed_once):
    found = [line for path in FILES for line in wrong(path, read(path))]
    assert not found, "\n".join([*found, ADVICE])
