"""The tournament's command line: what it plays, in which order, what it says; the training replaced."""

import re
from functools import partial
from pathlib import Path

import pytest

from lightning_fl.commands import tournament as script
from lightning_fl.study import tournament as module

SMALL = ["model=logistic", "--rules", "average,krum", "--attacks", "ipm,lie", "--skew", "iid", "--rates", "0.1"]


@pytest.fixture
def played():
    """The runs that were played, in order: rule, attack, seed."""
    return []


@pytest.fixture
def command(tmp_path, monkeypatch, typed, played):
    """Run tournament.py in an empty folder."""
    monkeypatch.setattr(module, "TABLES", tmp_path / "kept")
    monkeypatch.setattr(script, "stop_when_told", lambda: None)
    level = {"none": 0.9, "ipm": 0.6, "lie": 0.8}

    def play(cell, folder):
        rule, attack, *_ = cell.labels
        played.append((rule, attack, cell.seed))
        worse = 0.5 * (rule == "krum" and attack == "lie")
        came = {"status": "completed", "reason": "", "accuracy": level[attack] - worse, "worst_recall": 0.1}
        return cell, {**dict.fromkeys(module.FIELDS), **came, "seconds": 1.0, "identity": cell.title}

    monkeypatch.setattr(module, "_played", play)
    monkeypatch.setattr(module, "_possible", lambda cell: (cell, None))
    return partial(typed, script.main, "tournament.py", *SMALL)


def test_further_seeds_play_what_came_close_to_the_worst(command, played):
    """IPM costs averaging 30 points and LIE 10, Krum 30 and 60; of equals the worst does most to a class."""
    code, out, _ = command("--seeds", "3", "--again", "0.6")
    assert code == 0
    first = sorted((rule, attack, 0) for attack in ("none", "ipm", "lie") for rule in ("average", "krum"))
    again = {("average", "none"), ("average", "ipm"), ("krum", "none"), ("krum", "lie")}
    assert sorted(played[:6]) == first
    for seed, runs in ((1, played[6:10]), (2, played[10:])):
        assert sorted(runs) == sorted((rule, attack, seed) for rule, attack in again)
    assert re.findall(r"\d+ runs? of the tournament to play.*", out) == [
        "6 runs of the tournament to play, up to 12 more once these are known",
        "8 runs of the tournament to play",
    ]
    assert re.search(r"\n +Rule +Rank .*\n  -+\n +average +1 .* ipm .*\n +krum +2 .* lie ", out)
    assert "14 of 14 runs finished" in Path("runs/tournament/tournament.md").read_text()
    played.clear()
    assert command("--seeds", "3", "--again", "0.6")[0] == 0
    assert played == []
    command("--seeds", "3", "--again", "0")
    assert len(played) == 18 - 14


def test_a_dry_run_plays_nothing(command, played):
    code, out, _ = command("--seeds", "2", "--dry-run")
    assert (code, played) == (0, [])
    assert "Report" not in out
    assert "6 runs of the tournament to play, up to 6 more once these are known" in out
    assert "twin" not in out
    assert "\n0 twins to play, more once their runs are known\n" in command("--twins", "0.5", "--dry-run")[1]


def test_a_dry_run_refuses_a_misspelt_setting(command):
    code, out, err = command("--dry-run", "trainer.max_stes=3")
    assert code == 2
    assert "there is no setting trainer.max_stes; did you mean max_steps?" in err
    assert "to play" not in out


def test_a_misspelt_setting_leaves_the_report_of_a_finished_one(command, tmp_path):
    command("--rules", "average")
    before = {path.name: path.read_bytes() for path in tmp_path.rglob("tournament.*")}
    assert "tournament.md" in before
    code, _, err = command("--rules", "average", "trainer.max_stes=3")
    assert (code, "there is no setting trainer.max_stes" in err) == (2, True)
    assert {path.name: path.read_bytes() for path in tmp_path.rglob("tournament.*")} == before


def test_a_run_that_fails_is_tried_once(command, played, monkeypatch):
    """Its rule's further seeds wait for it."""
    play = module._played

    def failing(cell, folder):
        row = play(cell, folder)[1]
        return cell, row if cell.labels.attack != "lie" else {
            **row,
            "status": "failed",
            "reason": "E: no",
            "trace": "E",
        }

    monkeypatch.setattr(module, "_played", failing)
    code, _, err = command("--rules", "average", "--seeds", "2")
    assert code == 1
    assert sorted(played) == [("average", "ipm", 0), ("average", "lie", 0), ("average", "none", 0)]
    assert "1 run failed, of average; the first: E: no. The same command tries them again." in err


@pytest.mark.parametrize(
    ("option", "needs", "value"),
    [
        *(("--rates", "numbers above 0 separated by commas", value) for value in ("0.1,inf", "0", "few")),
        *(("--again", "a share from 0 to 1", value) for value in ("-1", "1.1", "nan", "few", "")),
        *((option, "names separated by commas", "") for option in ("--rules", "--attacks", "--knows", "--skew")),
    ],
)
def test_wrong_options_are_refused(command, option, needs, value):
    code, _, err = command(f"{option}={value}")
    assert code != 0
    assert f"{option} needs {needs}, got {value!r}" in err


def test_a_number_given_twice_counts_once(command, played):
    command("--seeds", "1", "--byzantine", "15,15")
    assert len(played) == len(set(played)) == 6
