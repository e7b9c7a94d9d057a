"""A result says which code measured it."""

import platform
import re
import subprocess
import sys
from pathlib import Path

import torch

from lightning_fl import __version__
from lightning_fl.run import version


def test_the_version_names_the_commit_of_a_checkout(tmp_path, monkeypatch):
    assert re.fullmatch(rf"{re.escape(__version__)}(\+g[0-9a-f]+(\.dirty)?)?", version.version())
    package = tmp_path / "lightning_fl" / "run" / "version.py"
    monkeypatch.setattr(version, "__file__", str(package))
    assert version.version() == __version__  # not a checkout
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e"]
    code, kept = tmp_path / "lightning_fl" / "__init__.py", tmp_path / "scripts" / "tables" / "tournament_2025.csv"
    for path in (code, kept):
        path.parent.mkdir(parents=True)
        path.write_text("before\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *command], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    name, _, short = version.version().partition("+g")
    assert name == __version__
    assert len(short) >= 7
    assert commit.startswith(short)
    kept.write_text("one more\n")
    assert version.version() == f"{__version__}+g{short}"
    code.write_text("after\n")
    assert version.version() == f"{__version__}+g{short}.dirty"
    monkeypatch.setenv("PATH", "")
    assert version.version() == __version__  # without git


def test_provenance_names_command_versions_and_processor(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["lightning-fl train", "aggregator=boba", "data.root=my data"])
    found = version.provenance("0.9+gabc")
    assert found["command"] == "lightning-fl train aggregator=boba 'data.root=my data'"
    assert found["versions"].startswith(
        f"lightning-fl 0.9+gabc, Python {platform.python_version()}, torch {torch.__version__.partition('+')[0]}"
    )
    assert re.match(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d[+-]", found["date"])
    assert found["processor"]
    own = ["lightning-fl train", "--config-dir", str(Path.cwd() / "conf"), "aggregator=mine"]  # as Hydra is told
    monkeypatch.setattr(sys, "argv", own)
    assert version.provenance()["command"] == "lightning-fl train aggregator=mine"
    monkeypatch.setattr(sys, "argv", ["lightning-fl train", "--config-dir", "elsewhere/conf", "aggregator=mine"])
    assert version.provenance()["command"] == "lightning-fl train --config-dir elsewhere/conf aggregator=mine"
    monkeypatch.setattr(sys, "argv", ["train.py", "aggregator=boba"])
    monkeypatch.setattr(sys, "orig_argv", ["python", "scripts/train.py", "+aggregator=boba"])
    assert version.provenance()["command"] == "python scripts/train.py +aggregator=boba"
