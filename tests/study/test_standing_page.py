"""The standing as a page: what a browser shows of it is what the kept cells say."""

import csv
import re
import shutil
import subprocess

import pytest

from lightning_fl.run import config
from lightning_fl.study.standing_page import left, standing_page
from lightning_fl.study.standings import Estimate, standings
from lightning_fl.study.table import TABLES
from lightning_fl.study.tournament import Entries, Panel, Tournament
from tests.browser import browse, needs_chromium

PANEL = Panel("iid", 15)


@pytest.fixture(scope="module")
def tournament():
    entries = Entries.choose(
        ["krum", "median", "fltrust"], ["ipm", "zero", "adaptive", "mimic"], skew=["iid"], protocol="2025"
    )
    return Tournament(entries, TABLES)


def written(tournament):
    return standing_page(
        tournament, {PANEL: standings(tournament, PANEL)}, ["<iid>"], ["</script>"], {"krum": "k.html"}
    )


def kept(rule, rate):
    """What the file has, by attack and seed."""
    with (TABLES / "tournament_2025.csv").open() as file:
        rows = [r for r in csv.DictReader(file) if (r["rule"], r["skew"], r["rate"]) == (rule, PANEL.skew, rate)]
    return {(row["attack"], int(row["seed"])): 100 * float(row["accuracy"]) for row in rows}


def test_what_is_left_is_what_was_kept(tournament):
    cells = kept("krum", "0.1")
    for attack, values in left(tournament, "krum", PANEL).items():
        assert values[0] == cells[attack, 0]
        assert all(value in (None, cells.get((attack, seed))) for seed, value in enumerate(values))


def test_a_rule_of_ones_own_is_marked(tournament, tmp_path, monkeypatch):
    (tmp_path / "aggregator").mkdir()
    (tmp_path / "aggregator" / "mine.yaml").write_text("_target_: lightning_fl.aggregator.median.Median\n")
    monkeypatch.setenv(config.OWN, str(tmp_path))
    entries = Entries.choose(
        ["median", "mine"], ["ipm"], ["+x: aggregator=mine f=1"], skew=["iid"], rates=[0.1], seeds=[0], protocol="2025"
    )
    made = Tournament(entries, tmp_path)
    made.store.begin()
    for cell in made.cells():
        made.add(cell, {"status": "completed", "accuracy": 0.5, "identity": "x"})
    page = written(made)
    own = dict(re.findall(r'"rule":"([^"]*)","own":(\w+)', page))
    assert own == {"median": "false", "mine": "true", "+x": "true"}


def test_names_end_no_script(tournament):
    page = written(tournament)
    assert page.count("</script>") == 2
    assert "<iid>" not in page


@needs_chromium
def test_a_browser_sorts_filters_and_links(tournament, tmp_path):
    path = tmp_path / "standing.html"
    path.write_text(written(tournament))

    def shown(view):
        dom = browse(f"{path.as_uri()}#{view}", "--dump-dom")
        (body,) = re.findall(r"<tbody>(.*?)</tbody>", dom, re.DOTALL)
        return [
            [re.sub(r"<.*?>", "", cell) for cell in re.findall(r"<td.*?</td>", row)] for row in body.split("</tr>")
        ], body

    rows, body = shown("open=krum")
    ranked = standings(tournament, PANEL)
    assert [row[:3] for row in rows if len(row) > 1] == [[one.rule, str(one.rank), one.worst.text()] for one in ranked]
    assert 'href="k.html"' in body
    assert "aggregator=krum adversary=zero" in body
    rows, _ = shown("sees=updates&needs=&sort=rule&up=true")  # no server's samples, no attacker who asks the rule
    assert [row[0] for row in rows[:-1]] == ["krum", "median"]
    values = left(tournament, "krum", PANEL)
    attack = min(["ipm", "mimic"], key=lambda name: values[name][0])
    at = [seed for seed, value in enumerate(values[attack]) if value is not None]
    worst = [min(v for name in ("ipm", "mimic") if (v := values[name][seed]) is not None) / 100 for seed in at]
    assert rows[0][2] == Estimate.of(worst).text()
    assert rows[0][4] == attack


@needs_chromium
@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="no pdftotext")
def test_it_prints_whole_rows_and_says_of_which_skew(tournament, tmp_path):
    path, printed = tmp_path / "standing.html", tmp_path / "standing.pdf"
    path.write_text(written(tournament))
    browse(path.as_uri(), "--no-pdf-header-footer", f"--print-to-pdf={printed}")
    shown = subprocess.run(["pdftotext", "-layout", printed, "-"], capture_output=True, text=True).stdout
    assert "<iid>" in shown  # the tab that is open
    assert "Attackers may know" not in shown
    (row,) = re.findall(r"^ *fltrust .*", shown, re.MULTILINE)
    (fltrust,) = (one for one in standings(tournament, PANEL) if one.rule == "fltrust")
    assert "samples at the" in row
    assert row.split()[-1] == f"{fltrust.rule_ms:.1f}"  # the last column is on the paper, too
