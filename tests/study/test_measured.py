"""Every cell that is kept can be found: its settings compose, and are those that it was measured with."""

import re
from hashlib import sha256

import pytest

from lightning_fl.run.check import checked
from lightning_fl.run.identity import identity
from lightning_fl.study import store
from lightning_fl.study.grid import Grid, read
from lightning_fl.study.table import TABLES, Table, names
from lightning_fl.study.tournament import FIELDS, KEPT, Entries, Place, Tournament

FILES = sorted((TABLES / "measured").glob("*.csv"))


def kept(path):
    """The grid that a file of scripts/tables/measured is of."""
    name = max((name for name in names() if f"{path.stem}_".startswith(f"{name}_")), key=len)
    options = re.fullmatch(
        r"(?:_scale_(?P<scale>[\d.]+))?(?:_told_(?P<told>[\d.]+))?(?P<more>.*)", path.stem.removeprefix(name)
    )
    more = re.split(r"_(?=\w+\.\w)", options["more"])[1:]  # of settings with a dot
    table, scale = Table.load(name), float(options["scale"] or 1)
    told = options["told"] and float(options["told"])
    made = Grid(table, scale, more, [], path.parent / "none", told=told)
    assert made.stem == path.stem, f"{path.name} is not a name that --keep gives"
    return made


def wrong(path, rows):
    made = kept(path)
    lost = [row for row in rows if (row["row"], row["column"]) not in made.overrides]
    for row in [*lost, *made.outdated(rows)]:
        yield f"{path.stem}: {row['row']}, {row['column']}, seed {row['seed']} was measured as {row['identity']}"


ADVICE = (
    "A setting that has come into the configuration with a default belongs into ADDED of lightning_fl/run/identity.py; "
    "a cell whose settings were changed on purpose is measured again (reproduce.py --keep --prune)."
)


def test_there_is_something():
    assert len(FILES) >= 9


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_files_first_row_has_its_name(path):
    assert not list(wrong(path, read(path)[:1])), ADVICE


def in_turn(rows):
    """Of each row and of each column of a table one kept cell, another column for each row."""
    labels, left = {"row": set(), "column": set()}, []
    for row in sorted(rows, key=lambda row: hash_of(row["row"], row["column"])):
        new = [key for key in labels if row[key] not in labels[key]]
        for key in new:
            labels[key].add(row[key])
        left += [row] if new else []
    return left


def hash_of(*labels):
    return sha256("/".join(labels).encode()).hexdigest()


@pytest.mark.slow
def test_every_row_and_every_column_has_its_name():
    """A cell's settings are those of its row and of its column, which other cells share."""
    found = [line for path in FILES for line in wrong(path, in_turn(read(path)))]
    assert not found, "\n".join([*found, ADVICE])


@pytest.mark.slow
def test_every_rule_and_every_attack_of_the_standing_has_its_name():
    """Each rule under one attack, in turn: its name is that of its parts, which other rows share."""
    rows, entries = store.read(KEPT, FIELDS), Entries.choose()
    played, attacks = Tournament(entries, TABLES / "none"), sorted({row["attack"] for row in rows if row["rule"]})
    for k, rule in enumerate(entries.rules):
        row = [row for row in rows if (row["rule"], row["attack"]) == (rule, attacks[k % len(attacks)])][-1]
        place = Place(*(row[field] for field in Place._fields))
        found = identity(checked(played.cell(place, row["seed"]).command))
        assert found == row["identity"], f"{place}, seed {row['seed']}: {ADVICE}"
