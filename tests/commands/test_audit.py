"""lightning-fl audit on a folder of kept rounds."""

import sys

import pytest

from lightning_fl.commands import audit
from tests.audit.test_audit import rounds
from tests.commands.command import outcome


@pytest.mark.drawn
def test_prints_a_table_and_writes_a_page(tmp_path, monkeypatch, capsys):
    rounds(tmp_path, "gram")
    monkeypatch.setattr(sys, "argv", ["lightning-fl audit", str(tmp_path), "--rules", "krum,median"])
    code, out, err = outcome(audit.main, capsys)
    assert (code, err) == (0, "")
    assert "4 !" in out
    assert "median left out" in out
    page = (tmp_path / "audit.html").read_text()
    assert "4 !" in page
    assert "data:image/png" in page


def test_refuses_a_folder_without_rounds(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["lightning-fl audit", str(tmp_path)])
    code, _, err = outcome(audit.main, capsys)
    assert code == 2
    assert "an audit needs kept rounds" in err


def test_fails_where_no_rule_is_left(tmp_path, monkeypatch, capsys):
    rounds(tmp_path, "gram")
    monkeypatch.setattr(sys, "argv", ["lightning-fl audit", str(tmp_path), "--rules", "median"])
    code, out, err = outcome(audit.main, capsys)
    assert code == 2
    assert "median left out" in out
    assert "audit has no rule left of median; name others by --rules" in err
    assert not (tmp_path / "audit.html").exists()
