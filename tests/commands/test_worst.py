"""lightning-fl worst on a stranger's file."""

import sys
from functools import partial

import pytest
import torch

from lightning_fl.commands import worst

RULES = """
import numpy as np

def middle(rows):
    return np.median(rows, axis=0)

def cut(rows, f):
    return np.sort(rows, axis=0)[f:-f].mean(0)

class Cut:
    def __init__(self, f):
        self.f = f

    def __call__(self, rows):
        return np.sort(rows, axis=0)[self.f : -self.f].mean(0)

class More:
    def __init__(self, k):
        self.k = k

    def __call__(self, rows):
        return rows[self.k]
"""


@pytest.fixture
def command(tmp_path, monkeypatch, typed):
    """Run a command line beside a file of rules."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "theirs.py").write_text(RULES)
    return partial(typed, worst.main, "lightning-fl worst")


@pytest.mark.drawn
@pytest.mark.parametrize("rule", ["theirs.py:middle", "theirs.py:cut", "theirs:Cut"])
def test_prints_a_table_and_draws_it(command, tmp_path, rule):
    code, out, err = command(rule, "--n", "7", "--f", "2", "--d", "3", "--budget", "70")
    assert (code, err) == (0, "")
    assert f"ByzAttack-1 against {rule.split(':')[1]}: n = 7, f = 2, d = 3" in out
    assert "two camps" in out
    assert (tmp_path / "runs/worst/worst.png").stat().st_size > 10_000
    honest, rows = torch.load(tmp_path / "runs/worst/worst.pt")["spread"]
    assert (honest.shape, rows.shape) == ((5, 3), (2, 3))


@pytest.mark.drawn
def test_where_half_of_the_rows_lie_there_is_no_bound_to_draw(command, tmp_path):
    code, _, err = command("theirs.py:middle", "--n", "6", "--f", "3", "--d", "3", "--budget", "30")
    assert (code, err) == (0, "")
    assert {path.name for path in (tmp_path / "runs/worst").iterdir()} == {"worst.png", "worst.pt"}


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ("theirs.py", "needs FILE.py:NAME or MODULE:NAME, got theirs.py"),
        ("nowhere.py:rule", "needs a file, got nowhere.py, which is not there"),
        ("nowhere_at_all:rule", "needs a module, got nowhere_at_all"),
        ("theirs.py:other", "got none named other in theirs.py"),
        ("theirs.py:more", "got none named more in theirs.py; did you mean More?"),
        ("theirs.py:More", "makes a rule with f alone, got More, which takes more"),
    ],
)
def test_refuses(command, rule, error):
    code, _, err = command(rule)
    assert code == 2
    assert error in err


def test_a_folder_that_cannot_be_written_is_refused_before_the_search(command, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lightning_fl.commands.TemporaryFile", full)
    code, out, err = command("theirs.py:middle", "--out", "there/far")
    assert (code, out) == (2, "")
    assert "there/far cannot be written: No space left on device" in err
    assert not (tmp_path / "there").exists()
