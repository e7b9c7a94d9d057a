"""Files are whole or untouched, and a write that fails says so."""

import ast
import os
import random
import resource
import signal
import subprocess
import sys
from collections import OrderedDict
from contextlib import contextmanager, suppress

import pytest
import torch
from matplotlib.figure import Figure

from lightning_fl import DataError, files, plot


@contextmanager
def room(size):
    """No file may grow beyond so many bytes: the system refuses as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_writes_and_replaces(tmp_path):
    path = tmp_path / "new" / "file"
    for content in (b"first", b"second", b""):
        files.write(path, content)
        assert path.read_bytes() == content
        assert os.listdir(path.parent) == ["file"]


def test_where_there_is_no_room_the_old_file_stays(tmp_path):
    path = tmp_path / "file"
    files.write(path, b"old")
    with room(1000), pytest.raises(DataError) as error:
        files.write(path, bytes(5000))
    assert str(error.value) == (
        f"{path} cannot be written: File too large; fix that, then run this again; of a run, repeat the command with "
        f"ckpt_path=auto and hydra.run.dir=FOLDER to continue from the last checkpoint."
    )
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_additions(tmp_path):
    path = tmp_path / "file"
    files.write(path, b"one")
    files.append(path, b" two")
    files.sync(path)
    assert path.read_bytes() == b"one two"
    with room(10), pytest.raises(DataError, match="file cannot be written: File too large"):
        files.append(path, bytes(100))
    assert path.read_bytes().startswith(b"one two")


def test_a_link_leads_nowhere(tmp_path):
    """A stranger's folder holds links to files of one's own in the places of what is written."""
    own = tmp_path / "own"
    own.write_text("mine")
    for name in ("page.html", "page.html.part", "picture.png", "rows.csv"):
        (tmp_path / name).symlink_to(own)
    files.write(tmp_path / "page.html", "theirs")
    plot.save(Figure(), tmp_path / "picture.png")
    with pytest.raises(DataError, match=r"rows\.csv is a link"):
        files.append(tmp_path / "rows.csv", b"theirs")
    assert own.read_text() == "mine"
    assert (tmp_path / "page.html").read_text() == "theirs"


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(DataError, match="taken/file cannot be written: "):
        files.write(tmp_path / "taken" / "file", b"")
    with pytest.raises(DataError, match="none/file cannot be written: No such file"):
        files.append(tmp_path / "none" / "file", b"")


@pytest.mark.parametrize("place", ["fsync", "replace"])
def test_a_kill_leaves_the_old_file_or_the_new_one(tmp_path, place):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    kill = f"os.kill(os.getpid(), {int(signal.SIGKILL)})"
    spoil = {"fsync": f"os.fsync = lambda _: {kill}", "replace": f"Path.replace = lambda *_: {kill}"}[place]
    code = f"import os; from pathlib import Path; from lightning_fl import files; {spoil}; "
    code += f"files.write(Path({str(path)!r}), b'n' * 1000)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    files.write(path, b"new")  # what the kill left is not in the way
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


SWEPT = "metric: {name: accuracy, goal: maximize}\nparameters: {seed: {value: 1}}"


def test_what_people_write_is_utf_8_in_any_locale(tmp_path):
    for name, text in [
        ("table.yaml", "title: Über\nrows: {α: aggregator=krum}\ncolumns: {LIE: adversary=lie}\n"),
        ("sweep.yaml", f"program: scripts/train.py\nmethod: grid\nname: Über\n{SWEPT}\n"),
        ("cells.csv", "rule,identity\nkrüm,1\n"),
    ]:
        (tmp_path / name).write_text(text, "utf-8")
    code = """
from pathlib import Path
from lightning_fl.study import grid, store, sweep_file, table
store.write(Path("kept.csv"), grid.FIELDS, [{"row": "\\u03b1", "column": "LIE", "seed": 0, "identity": "1"}])
found = [grid.read(Path("kept.csv"))[0]["row"], store.read(Path("cells.csv"), [])[0]["rule"]]
found += [*table.Table.load("table.yaml").rows, sweep_file.read(Path("sweep.yaml"))["name"]]
print(ascii(found))
"""
    environment = os.environ | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-X", "utf8=0", "-c", code]
    found = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert ast.literal_eval(found.stdout) == ["α", "krüm", "α", "Über"]


def test_no_flipped_bit_is_another_content(tmp_path):
    """Torch reads most of them as if nothing were wrong."""
    content = {"weight": torch.arange(6.0), "memory": [(1, "text", None), {"rounds": 3.5}], "order": OrderedDict(b=1)}
    path, draw = tmp_path / "saved", random.Random(0)
    files.save(path, content)
    whole, expected, silent = path.read_bytes(), repr(content), 0
    assert repr(files.load(path)) == expected
    for at in range(0, len(whole), 5):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << draw.randrange(8)]) + whole[at + 1 :])
        with suppress(Exception):
            silent += repr(torch.load(path, weights_only=True)) != expected
        with suppress(DataError):
            assert repr(files.load(path)) == expected, at
    assert silent > 0


def test_a_mark_of_a_folder_is_not_taken_for_content(tmp_path):
    """Torch takes what the memory holds for it."""
    path = tmp_path / "saved"
    files.save(path, torch.ones(3))
    whole = path.read_bytes()
    at = whole.index(b"PK\x01\x02", whole.index(b"PK\x01\x02") + 1) + 38  # external attributes of the second member
    path.write_bytes(whole[:at] + b"\x10" + whole[at + 1 :])
    with pytest.raises(DataError, match="cannot be read"):
        files.load(path)


def test_a_row_of_more_cells_than_the_header_is_named(tmp_path):
    """Not read without its end: the comma was part of a text."""
    (tmp_path / "x.csv").write_text('text,label\n"good, very good",1\nbad, very bad,0\n')
    with pytest.raises(DataError, match=r"csv cannot read .*x\.csv: row 2 has 3 cells, the header 2; put a text"):
        files.rows(tmp_path / "x.csv", "csv")
