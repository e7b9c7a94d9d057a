"""Files of records that several processes share, and what a kill or a spreadsheet leaves of them."""

from pathlib import Path

import pytest

from lightning_fl import DataError
from lightning_fl.study.store import Store, find, free, read, write

FIELDS = ["rule", "seed", "status", "accuracy", "identity"]


def record(rule, seed, accuracy, identity):
    return {"rule": rule, "seed": seed, "status": "completed", "accuracy": accuracy, "identity": identity}


def test_records_are_read_as_they_were_written(tmp_path):
    path, rows = tmp_path / "cells.csv", [record('a, "b"', 3, 0.25, "x"), record("ü", 0, None, "y")]
    write(path, FIELDS, rows)
    assert read(path, FIELDS) == rows
    assert read(path, [*FIELDS, "key"]) == [row | {"key": None} for row in rows]
    assert read(tmp_path / "none.csv", FIELDS) == []


def test_what_others_add_is_seen_and_nothing_is_lost(tmp_path):
    one, other = (Store(tmp_path / "cells.csv", FIELDS) for _ in range(2))
    for store, identity in [(one, "x"), (other, "y"), (one, "z")]:
        store.begin()
        store.add(record("a", 0, 0.5, identity))
    assert [row["identity"] for row in one.refresh()] == [row["identity"] for row in other.refresh()] == ["x", "y", "z"]


def test_a_file_of_other_columns_gets_these_and_keeps_its_records(tmp_path):
    write(tmp_path / "cells.csv", FIELDS[1:], [record("a", 0, 0.5, "x")])
    store = Store(tmp_path / "cells.csv", FIELDS)
    store.begin()
    store.add(record("b", 1, 0.75, "y"))
    assert [(row["rule"], row["identity"]) for row in store.refresh()] == [("", "x"), ("b", "y")]


def test_what_a_spreadsheet_or_a_reader_added_costs_no_record(tmp_path):
    path, rows = tmp_path / "cells.csv", [record("a", 0, 0.5, "x"), record("b", 1, 0.75, "y")]
    write(path, FIELDS, rows)
    path.write_text(path.read_text().replace(",0,", ",0.0,").replace("identity", "note,identity").replace(",x", ",ü,x"))
    path.write_text(path.read_text().replace(",y", ",,y"))
    store = Store(path, FIELDS)
    assert [row | {"note": "*"} for row in store.refresh()] == [row | {"note": "*"} for row in rows]
    store.begin()
    assert read(path, FIELDS) == rows
    write(path, FIELDS, [record("a", seed, 0.5, "x") for seed in (12345678901234567890, "1.5", "inf", "3e0")])
    assert [row["seed"] for row in read(path, FIELDS)] == [12345678901234567890, 3]


@pytest.mark.parametrize(
    ("damaged", "left"),
    [
        (lambda head, first, second: b"", []),
        (lambda *lines: b"\xef\xbb\xbf" + b"".join(lines), ["x", "y"]),  # a byte order mark
        (lambda *lines: b"".join(line.replace(b",0.5", b"").replace(b",accuracy", b"") for line in lines), ["x", "y"]),
        (lambda head, first, second: head + first.replace(b",0,", b",zero,") + second, ["y"]),
        (lambda head, first, second: head + first + b"\xff\xfe" + second[:9], ["x"]),
        (lambda head, first, second: head + first + second[:-3], ["x"]),  # a kill
        (lambda head, first, second: head + b'"krum needs, n\n' + second, ["y"]),  # a kill, inside quotes
    ],
)
def test_damage_costs_the_damaged_lines_alone(tmp_path, damaged, left):
    path = tmp_path / "cells.csv"
    write(path, FIELDS, [record("a", 0, 0.5, identity) for identity in "xy"])
    path.write_bytes(damaged(*path.read_bytes().splitlines(keepends=True)))
    store = Store(path, FIELDS)
    assert [row["identity"] for row in store.refresh()] == left
    store.begin()
    store.add(record("a", 0, 0.5, "z"))
    assert [row["identity"] for row in read(path, FIELDS)] == [*left, "z"]


def test_a_file_of_another_separator_is_refused_and_stays(tmp_path):
    path = tmp_path / "cells.csv"
    write(path, FIELDS, [record("a", 0, 0.5, "x")])
    path.write_bytes(written := path.read_bytes().replace(b",", b";"))
    with pytest.raises(DataError, match=r"cells\.csv has no column identity; restore it, remove it, or give another"):
        Store(path, FIELDS).begin()
    assert path.read_bytes() == written


def test_a_record_is_found_by_its_run(tmp_path):
    paths = [tmp_path / name for name in ("none.csv", "a.csv", "b.csv")]
    for path, identity in zip(paths[1:], "xy", strict=True):
        write(path, FIELDS, [record("a", 0, 0.5, identity)])
    write(tmp_path / "c.csv", FIELDS, [record("a", 0, 0.7, "y")])
    paths.append(tmp_path / "c.csv")
    assert find(paths, FIELDS, ["y"]) == {"y": record("a", 0, 0.5, "y")}
    assert find(paths, FIELDS, ["a"]) == {}
    assert find(paths, FIELDS, ["y", "a", "x"]) == {name: record("a", 0, 0.5, name) for name in "xy"}


def test_a_claim_is_one_process_s(tmp_path):
    store = Store(tmp_path / "cells.csv", FIELDS)
    held = store.claim("k")
    assert Store(tmp_path / "cells.csv", FIELDS).claim("k") is None
    free(held)
    again = store.claim("k")
    assert again is not None
    free(again)


def test_a_claim_is_given_up_where_an_open_file_cannot_be_removed(tmp_path, monkeypatch):
    def refuse(path, missing_ok=False):
        raise PermissionError(path)

    store = Store(tmp_path / "cells.csv", FIELDS)
    with monkeypatch.context() as windows:
        windows.setattr(Path, "unlink", refuse)
        free(store.claim("k"))
    again = store.claim("k")
    assert again is not None
    free(again)
