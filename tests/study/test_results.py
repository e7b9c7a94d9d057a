"""The tables inside RESULTS.md and TOURNAMENT.md."""

import re
from pathlib import Path

import pytest

from lightning_fl import SettingError
from lightning_fl.study import grid, results, table, tournament
from lightning_fl.study.grid import FIELDS
from lightning_fl.study.results import filled

PAGES = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "marker", "least"),
    [
        ("RESULTS", "measured", 7),
        ("TOURNAMENT", "tournament", 1),
        ("docs/more_rules", "tournament", 3),
        ("docs/leagues", "tournament", 5),
        ("docs/tournament_2025", "tournament", 2),
    ],
)
def test_the_page_has_what_is_kept(name, marker, least):
    """If this fails: python scripts/results.py."""
    page = (PAGES / f"{name}.md").read_text()
    assert page.count(f"<!-- {marker}:") + page.count("<!-- verdicts:") == page.count("<!-- end -->") >= least
    assert filled(page) == page


def test_a_table_is_filled_in_and_the_text_around_it_stays(tmp_path, monkeypatch):
    (tmp_path / "measured").mkdir()
    (tmp_path / "mine.yaml").write_text(
        "{title: Mine, rows: {Average: aggregator=average}, columns: {IPM: adversary=ipm, LIE: adversary=lie},"
        " published: {Average: [9.8, 92.5]}, claims: [{text: LIE is weak, left: {rows: [Average], columns: [LIE]},"
        " relation: '>=', right: 90}, {text: IPM is strong, left: {rows: [Average], columns: [IPM]}, relation: '<=',"
        " right: '90'}]}"
    )
    cell = {"row": "Average", "column": "IPM", "seed": "0", "status": "completed", "accuracy": "10.8"}
    cell |= {"identity": "abc", "seconds": "61"}
    (tmp_path / "measured" / "mine.csv").write_text(
        f"{','.join(FIELDS)}\n{','.join(cell.get(field, '') for field in FIELDS)}\n"
    )
    for module in (grid, table):
        monkeypatch.setattr(module, "TABLES", tmp_path)
    page = filled("before\n<!-- measured: mine -->\nold\n<!-- end -->\nafter <!-- end -->\n")
    assert page.startswith("before\n<!-- measured: mine -->\n\nShown: test accuracy")
    assert page.endswith("\n\n<!-- end -->\nafter <!-- end -->\n")
    assert "1 of 2 cells measured, seed 0; 1 runs, 1 min 1 s of training." in page
    assert "| Average | **10.8** +1.0<br>9.8 |" in page
    assert "| IPM is strong | passed | 1 of 1 hold |" in page
    assert "LIE is weak" not in page
    assert filled(page) == page
    several = filled(
        "<!-- verdicts: -->\n<!-- end -->\n## My paper\n### Table 1: a, b\n<!-- measured: mine -->\n<!-- end -->\n"
    )
    assert "| [My paper: Table 1: a, b](#table-1-a-b) | 1 of 2 | none | 1 | 1 | `mine` |" in several
    mine = tmp_path / "mine.yaml"
    mine.write_text(re.sub(r", \{text: IPM is strong.*\}\]", "]", mine.read_text()))
    assert "9.8 |\n\n<!-- end -->" in filled(page)  # no head of claims without one
    for end in [" \n", "\r\n"]:
        assert "90.0" not in filled(f"<!-- measured: mine -->{end}90.0\n<!-- end -->")


def test_a_table_without_kept_cells_is_an_error():
    with pytest.raises(SettingError, match=r"nothing is kept of boba_1_mnist --scale 0\.5"):
        filled("<!-- measured: boba_1_mnist --scale 0.5 -->\n<!-- end -->")


def test_a_forgotten_end_is_an_error():
    for rest in ["text\n<!-- measured: boba_2_mnist -->\n<!-- end -->\n", "text to the end of the page\n"]:
        with pytest.raises(
            SettingError, match=r"needs <!-- end --> below it, <!-- measured: boba_1_mnist --> has none"
        ):
            filled(f"<!-- measured: boba_1_mnist -->\n{rest}")


def test_a_tournament_is_filled_in(tmp_path, monkeypatch):
    for module in (results, tournament):
        monkeypatch.setattr(module, "TABLES", tmp_path)
    marker = "<!-- tournament: --rules average --attacks sign_flip --skew iid --seeds 1 --rates 0.1 -->"
    with pytest.raises(SettingError, match=r"nothing is kept of this tournament: .* is not there"):
        filled(f"{marker}\n<!-- end -->")
    entries = tournament.Entries.choose(["average"], ["sign_flip"], skew=["iid"], seeds=[0], rates=[0.1])
    played = tournament.Tournament(entries, tmp_path)
    for cell, accuracy in zip(played.cells(), [0.9, 0.25], strict=True):
        row = {"status": "completed", "accuracy": accuracy, "worst_recall": accuracy / 2, "seconds": 1.0}
        place = cell.labels._asdict() | {"seed": 0, "identity": played.key(cell)}
        played.records[played.key(cell)] = dict.fromkeys(tournament.FIELDS) | row | place
    tournament.keep(played)
    page = filled(f"before\n{marker}\nold\n<!-- end -->\nafter\n")
    assert page.startswith(f"before\n{marker}\n\n1 rule under 1 attack, seed 0: 2 of 2 runs finished")
    assert "| average | 1 | 0.1 | 90.0 | 25.0 | 12.5 | sign_flip | - | - |" in page
    assert page.endswith("\n\n<!-- end -->\nafter\n")
    assert filled(page) == page
