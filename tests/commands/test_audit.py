"""lightning-fl audit on a folder of kept rounds."""

import pytest

from lightning_fl.commands import audit
from tests.audit.test_audit import rounds


@pytest.mark.drawn
def test_prints_a_table_and_writes_a_page(tmp_path, typed):
    rounds(tmp_path, "gram")
    code, out, err = typed(audit.main, "lightning-fl audit", tmp_path, "--rules", "krum,median")
    assert (code, err) == (0, "")
    assert "4 !" in out
    assert "median left out" in out
    page = (tmp_path / "audit.html").read_text()
    assert "4 !" in page
    assert "Each rule is told f = 1 (--f)." in out
    assert "Each rule is told f = 1 (--f)." in page
    assert "data:image/png" in page


def test_refuses_a_folder_without_rounds(typed):
    code, _, err = typed(audit.main, "lightning-fl audit", ".")
    assert code == 2
    assert "an audit needs kept rounds" in err


def test_a_rule_by_coordinates_has_a_page_without_a_picture(tmp_path, typed):
    rounds(tmp_path, "updates")
    code, _, err = typed(audit.main, "lightning-fl audit", tmp_path, "--rules", "median")
    assert (code, err) == (0, "")
    assert "median: a lie moves" in (tmp_path / "audit.html").read_text()


def test_fails_where_no_rule_is_left(tmp_path, typed):
    rounds(tmp_path, "gram")
    code, out, err = typed(audit.main, "lightning-fl audit", tmp_path, "--rules", "median")
    assert code == 2
    assert "median left out" in out
    assert "audit has no rule left of median; name others by --rules" in err
    assert not (tmp_path / "audit.html").exists()
