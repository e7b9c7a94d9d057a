"""Every cell composes, and one that is kept can be found: its settings are those that it was measured with."""

import re
from hashlib import sha256

import pytest

from lightning_fl import Aggregator, Client
from lightning_fl.aggregator.average import Average
from lightning_fl.contract.case import case
from lightning_fl.run.assemble import make
from lightning_fl.run.check import checked
from lightning_fl.run.identity import identity
from lightning_fl.study import grid, store
from lightning_fl.study.grid import Grid, read
from lightning_fl.study.table import TABLES, Table, names
from lightning_fl.study.tournament import FIELDS, Entries, Place, Tournament

FILES = sorted((TABLES / "measured").glob("*.csv"))
DIGESTS = {
    "subset.csv": "c69989dafe5dddae7198516194a987a92f4a419f248e85ae3267a5ee20cd5864",  # 7,984 of AG-News's texts
    "glove.6B.100d.txt": "bec6c365b2bab544ac0d8b6a38fda006073968405ac43d9fcff9f538ffe4b149",  # its first 40,000 lines
}


def table_of(path):
    """The name of the table that a file of scripts/tables/measured is of."""
    return max((name for name in names() if f"{path.stem}_".startswith(f"{name}_")), key=len)


def kept(path):
    """The grid that a file of scripts/tables/measured is of."""
    name = table_of(path)
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


@pytest.fixture(autouse=True)
def data_that_others_have(tmp_path, monkeypatch):
    """Files that measured runs have read from their working folder, by the digests of what they held."""
    for name in DIGESTS:
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lightning_fl.run.identity._known_digest", lambda path, *_: DIGESTS[path.name])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_files_first_row_has_its_name(path):
    assert not list(wrong(path, read(path)[:1])), ADVICE


def in_turn(places, seen):
    """Those places whose row or column has not been seen; first the ones that show both."""
    for new in (2, 1):
        for place in sorted(places, key=lambda place: sha256("/".join(place).encode()).hexdigest()):
            if sum(label not in known for label, known in zip(place, seen, strict=True)) >= new:
                for label, known in zip(place, seen, strict=True):
                    known.add(label)
                yield place


def trainable(overrides):
    """The settings of a run, with a client and a rule that can be made."""
    config = checked(overrides)
    assert isinstance(make(config.client), Client)
    assert isinstance(make(config.aggregator) if "aggregator" in config else Average(), Aggregator)
    return config


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_every_row_and_every_column_composes_and_has_its_name(name, monkeypatch):
    """A cell's settings are those of its row and of its column, which other cells share: one that is kept, if any."""
    monkeypatch.setattr(grid, "checked", trainable)
    seen, found = (set(), set()), []
    for path in [path for path in FILES if table_of(path) == name]:
        rows = {(row["row"], row["column"]): row for row in read(path)}
        found += wrong(path, [rows[place] for place in in_turn(rows, seen)])
    assert not found, "\n".join([*found, ADVICE])
    runs = dict(Table.load(name).runs())
    for place in in_turn(runs, seen):
        with case(*place):
            assert trainable(runs[place]).federation.n_clients > 1


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(TABLES.glob("tournament_*.csv")), ids=lambda path: path.stem)
def test_every_rule_of_a_standing_has_its_name(path):
    """Each rule under one attack, in turn: its name is that of its parts, which other rows share."""
    rows = [row for row in store.read(path, FIELDS) if row["rule"]]
    by_rule = {rule: [row for row in rows if row["rule"] == rule] for rule in {row["rule"]: None for row in rows}}
    entries = Entries.choose([*by_rule], protocol=path.stem.removeprefix("tournament_"))
    played, attacks = Tournament(entries, TABLES / "none"), sorted({row["attack"] for row in rows})
    for k, of_rule in enumerate(by_rule.values()):
        row = ([row for row in of_rule if row["attack"] == attacks[k % len(attacks)]] or of_rule)[-1]
        place = Place(*(row[field] for field in Place._fields))
        found = identity(checked(played.cell(place, row["seed"], row["twin"]).command))
        assert found == row["identity"], f"{place}, seed {row['seed']}: {ADVICE}"
