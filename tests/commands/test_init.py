"""A project of one's own, begun where there is no checkout."""

import json
import sys
from pathlib import Path
from shutil import Error

import pytest

from lightning_fl import DataError, SettingError
from lightning_fl.commands.init import init
from lightning_fl.run.saved import SavedRun

ROOT = Path(__file__).resolve().parents[2]


def files(folder):
    found = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    return {path for path in found if not {"__pycache__", "runs"} & set(path.parts) and path.name[0] != "."}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A fresh one; its folder is the working folder, and its modules are forgotten afterwards."""
    init(tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.syspath_prepend(str(tmp_path / "project"))
    yield tmp_path / "project"
    for name in [name for name in sys.modules if name.startswith("my_")]:
        del sys.modules[name]


def test_it_holds_the_example_and_the_sweeps(project):
    sweeps = {Path("sweeps") / path for path in files(ROOT / "sweeps")}
    assert files(project) == files(ROOT / "examples" / "own_project") | sweeps
    with pytest.raises(SettingError, match=r"init needs a new or an empty folder, got .*project; choose another"):
        init(project)


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def copied(source, target, **_):
        target.mkdir()
        (target / "half").write_text("")
        raise Error([("from", "to", "[Errno 28] No space left on device: 'from' -> 'to'")])

    monkeypatch.setattr("lightning_fl.commands.init.copytree", copied)
    with pytest.raises(
        DataError, match=r"mine cannot be written: \[Errno 28\] No space left on device; nothing is left"
    ):
        init(tmp_path / "mine")
    assert not list(tmp_path.iterdir())


def test_its_notebook_compares_the_rule(project):
    cells = [cell for cell in json.loads(Path("notebook.ipynb").read_text())["cells"] if cell["cell_type"] == "code"]
    names: dict = {}
    for cell in cells:
        assert not cell["outputs"]
        exec("".join(cell["source"]).replace("rounds=20, seed=[0, 1, 2]", "rounds=1, seed=[0, 1]"), names)
    table = names["table"]
    assert (table.rows, table.columns) == (["my_rule", "krum", "average"], ["my_attack", "lie"])
    assert list(table.frame["runs"]) == [2] * 6
    assert SavedRun.read("runs/notebook/my_rule").metrics == names["run"].metrics
