"""lightning-fl submit in the example project, at two runs of two rounds."""

import math
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from lightning_fl.commands import submit
from lightning_fl.run import config
from lightning_fl.study import store
from lightning_fl.study import tournament as module
from lightning_fl.study.submission import Submission
from lightning_fl.study.tournament import STORED
from tests.commands.command import outcome

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--skew", "iid", "--attacks", "ipm", "--rates", "0.1", "--seeds", "1", "--byzantine", "2", "--budget", "5"]
SMALL += [
    "--rules",
    "average",
    "model=logistic",
    "federation.n_clients=8",
    "trainer.max_steps=2",
    "trainer.val_check_interval=2",
]


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run a command line in a copy of the example, whose laws are tried elsewhere; gives exit code, output, errors."""
    folder = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "own_project", folder, ignore=shutil.ignore_patterns("runs", "__pycache__"))
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv(config.OWN, "")
    monkeypatch.setattr(module, "TABLES", tmp_path / "kept")
    monkeypatch.setattr(submit, "stop_when_told", lambda: None)
    monkeypatch.setattr(Submission, "check_laws", lambda submission: None)
    for path in folder.glob("my_*.py"):  # another test's copy may be there
        monkeypatch.delitem(sys.modules, path.stem, raising=False)

    def run(*arguments):
        os.environ[config.OWN] = ""
        monkeypatch.setattr(sys, "argv", ["lightning-fl submit", *arguments])
        return outcome(submit.main, capsys)

    return run


def fill_in(name):
    card = dict.fromkeys(["title", "authors", "link", "needs", "claims"], "A word")
    Path("submissions", name, "card.yaml").write_text(yaml.safe_dump(card))


def test_a_rule_is_sent_whole_and_holds_only_if_its_runs_can_be_repeated(command):
    code, _, err = command("my_rule", *SMALL)
    assert code == 2
    assert "card.yaml needs title, authors, link, needs, claims, got none; fill it in" in err
    fill_in("my_rule")
    code, out, err = command("my_rule", *SMALL)
    assert code == 0, err
    folder = Path("submissions/my_rule")
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {
        *["card.yaml", "submission.yaml", "cells.csv", "result.md", "my_rule.py", "conf/aggregator/my_rule.yaml"]
    }
    assert "ByzAttack-1 against MyRule" in out
    assert (folder / "result.md").read_text().count("my_rule") >= 1
    rows = store.read(folder / "cells.csv", STORED)
    assert [(row["attack"], row["status"]) for row in rows] == [("none", "completed"), ("ipm", "completed")]

    code, out, err = command("--check", "submissions/my_rule", "--budget", "5", "--trial")
    assert code == 0, err
    assert "2 runs compared: 95 % within 0.00 points (1 allowed)" in out
    assert Path("runs/submit/my_rule_again/standing.html").exists()
    rows[0]["accuracy"] += 0.1
    store.write(folder / "cells.csv", STORED, rows)
    code, out, _ = command("--check", "submissions/my_rule", "--budget", "5", "--trial")
    assert code == 1
    assert "the farthest 10.00 (none, iid, seed 0)" in out
    rows[0]["accuracy"] = math.nan
    store.write(folder / "cells.csv", STORED, rows)
    code, out, _ = command("--check", "submissions/my_rule", "--budget", "5", "--trial")
    assert (code, "1 run cannot be what it says (none, iid, seed 0: completed, nan)" in out) == (1, True)
    rows[0]["status"] = "refused"
    store.write(folder / "cells.csv", STORED, rows)
    code, out, _ = command("--check", "submissions/my_rule", "--budget", "5", "--trial")
    assert (code, "1 run cannot be what it says (none, iid, seed 0: refused" in out) == (1, True)
    store.write(folder / "cells.csv", STORED, rows[:1])
    code, out, _ = command("--check", "submissions/my_rule", "--budget", "5", "--trial")
    assert (code, "1 run not submitted, of 2." in out) == (1, True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{name: my_rule, lowers: null, selection: 5}", "needs options as selection, got 5"),
        (
            "{name: my_rule, lowers: null, selection: {rules: [average]}}",
            "options .* as text, got rules",
        ),
        ("{name: my_rule, lowers: null, selection: {nonsense: 'x'}}", "selection needs options .* got nonsense: 'x'"),
        ("{name: my_attack, lowers: 'krum,average', selection: {}}", "there is no rule krum,average"),
        ("{name: my_\u0440ule, lowers: null, selection: {}}", "needs a name of Latin letters, digits"),
        ("{name: 7, lowers: null, selection: {}}", "needs a name of Latin letters, digits"),
        ("{name: my_rule, lowers: null, selection: {overrides: ['run_name=${oc.env:HOME}']}}", "put in the value"),
    ],
)
def test_what_was_sent_is_read_with_care(command, content, message):
    folder = Path("submissions", "any")
    folder.mkdir(parents=True)
    shutil.copytree("conf", folder / "conf")
    (folder / "submission.yaml").write_text(content)
    code, _, err = command("--check", str(folder), "--dry-run")
    assert code == 2
    assert re.search(message, err)


def test_an_attack_enters_by_what_it_leaves_of_a_rule(command):
    command("my_attack", "--lowers", "average", *SMALL)
    fill_in("my_attack")
    code, out, err = command("my_attack", "--lowers", "average", *SMALL)
    assert code == 0, err
    accuracies = {
        row["attack"]: 100 * row["accuracy"] for row in store.read(Path("submissions/my_attack/cells.csv"), STORED)
    }
    below = min(accuracies["none"], accuracies["ipm"]) - accuracies["my_attack"]
    verdict = "lowers" if below > 1 else "does not lower"
    assert f"iid, 2 Byzantine clients: my_attack {verdict} average, {abs(below):.2f} points" in out
    assert ("points below the worst of the others." if below > 0 else "points above") in out
    assert Path("submissions/my_attack/my_attack.py").exists()


def test_what_is_sent_holds_all_that_it_names(command):
    """A rule that is like another file of one's own, on a model and data of one's own; Python reads them elsewhere."""
    Path("conf/aggregator/my_base.yaml").write_text(Path("conf/aggregator/my_rule.yaml").read_text())
    Path("conf/aggregator/my_child.yaml").write_text("# Like it.\ndefaults: [my_base]\n")
    small = [one.replace("model=logistic", "--data=my_data") for one in SMALL] + ["--model", "my_model"]
    command("my_child", *small)
    fill_in("my_child")
    code, _, err = command("my_child", *small)
    assert code == 0, err
    sent = {str(path.relative_to("submissions/my_child")) for path in Path("submissions/my_child").rglob("*.*")}
    assert sent >= {"conf/aggregator/my_base.yaml", "conf/aggregator/my_child.yaml", "my_rule.py", "my_model.py"}
    assert sent >= {"conf/data/my_data.yaml", "my_data.py", "conf/model/my_model.yaml"}
    assert not {name for name in sent if "my_attack" in name}
    code, _, err = command("--check", "submissions/my_child", "--budget", "5", "--trial")
    assert code == 0, err


def test_an_attack_that_cannot_be_run_lowers_nothing(command):
    """One is refused in its first round, one before."""
    code = Path("my_attack.py").read_text()
    refusing = code.replace('"""Forge the rows."""', 'raise SettingError("my_attack needs another model.")')
    Path("my_attack.py").write_text(f"from lightning_fl.errors import SettingError\n{refusing}")
    backdoor = "# As ours.\n_target_: lightning_fl.adversary.badnets.Badnets\nsize: 3\n"
    Path("conf/adversary/my_backdoor.yaml").write_text(backdoor)
    for name, said in [("my_attack", "needs another model"), ("my_backdoor", "needs Byzantine clients with data")]:
        command(name, "--lowers", "krum", *SMALL)
        fill_in(name)
        code, out, err = command(name, "--lowers", "krum", *SMALL)
        assert code == 2
        assert f"{name} cannot be run against krum: " in err
        assert said in err
        assert "lower" not in out
        assert not Path("submissions", name, "cells.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["my_attack", "--dry-run"], "submit takes my_attack, an attack, with --lowers RULE; add the rule"),
        (["krum"], "submit needs a file of your own in conf/aggregator, got krum, one of ours"),
        (["my_rul"], "there is no aggregator my_rul; did you mean my_rule"),
        (["my_rule", "--lowers", "krum"], "there is no adversary my_rule"),
        ([], "needs the name of your rule or attack, or --check FOLDER"),
        (["--check", "conf"], "conf needs a submission.yaml as lightning-fl submit writes it"),
        (["--check", "conf", "--attacks", "lie"], "--check plays what the submission chose, got attacks; leave it out"),
        (["--check", "conf", "trainer.max_steps=9"], "--check plays what the submission chose, got overrides"),
        (["trainer.max_steps=9"], "needs the name of your rule or attack, or --check FOLDER"),
        (["my_rule", "--budget", "0"], "--budget must be a whole number of at least 1, got 0"),
        (["my_rule", "--error", "-1"], "--error must be at least 0, got -1"),
        (["my_attack", "--lowers", "krumm"], "there is no rule krumm; did you mean krum"),
    ],
)
def test_what_cannot_be_sent_is_said_before_anything_is_played(command, arguments, message):
    code, _, err = command(*arguments)
    assert code == 2
    assert message in err
    assert not Path("submissions").exists()
    assert not Path("conf/card.yaml").exists()


def test_a_dry_run_plays_and_writes_nothing(command):
    code, out, err = command("my_rule", *SMALL, "--dry-run")
    assert code == 0, err
    assert "2 runs of the tournament to play" in out
    assert "send" not in out
    assert not Path("submissions").exists()


def test_what_is_not_the_protocol_s_is_a_trial(command):
    command("my_rule", *SMALL)
    fill_in("my_rule")
    out = command("my_rule", *SMALL)[1]
    assert "submissions/my_rule: a trial; without overrides, rules, attacks, skew" in out
    code, out, _ = command("--check", "submissions/my_rule", "--budget", "5")
    assert (code, "It is a trial, not the protocol's." in out) == (1, True)
