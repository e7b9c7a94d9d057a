"""The skills for assistants are true: their files make what they say, and their commands are valid in that folder."""

import importlib
import re
import shlex
import sys
from itertools import product
from pathlib import Path

import pytest
import torch
import yaml

from lightning_fl import DataError, SettingError
from lightning_fl.__main__ import main
from lightning_fl.commands import reproduce, tournament
from lightning_fl.commands.skills import skills
from lightning_fl.commands.worst import rule_of
from lightning_fl.run.check import checked
from lightning_fl.run.config import choices
from lightning_fl.study.grid import Grid
from lightning_fl.study.options import selected
from lightning_fl.study.table import Table

ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(path.parent.name for path in ROOT.glob("examples/skills/*/SKILL.md"))


def blocks(text, language):
    return [
        re.sub(r"^   ", "", block, flags=re.MULTILINE) for block in re.findall(rf"```{language}\n(.*?)```", text, re.S)
    ]


def test_a_full_disk_leaves_the_others(tmp_path, monkeypatch):
    def copied(source, target, **_):
        target.mkdir(parents=True)
        raise OSError(28, "No space left on device")

    (tmp_path / "mine").mkdir()
    monkeypatch.setattr("lightning_fl.commands.skills.copytree", copied)
    with pytest.raises(DataError, match="cannot be written: No space left on device; nothing is left of it"):
        skills(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_they_are_put_beside_others(tmp_path):
    (tmp_path / "others").mkdir()
    skills(tmp_path)
    for name in NAMES:
        assert (tmp_path / name / "SKILL.md").read_text() == (ROOT / f"examples/skills/{name}/SKILL.md").read_text()
    with pytest.raises(SettingError, match=rf"skills needs a folder without {', '.join(NAMES)}, got .*choose another"):
        skills(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_each_is_found_and_its_commands_are_valid(name, tmp_path, monkeypatch, capsys):
    text = (ROOT / "examples" / "skills" / name / "SKILL.md").read_text()
    head = yaml.safe_load(text.split("---")[1])
    assert head["name"] == name
    assert 0 < len(head["description"]) < 1024
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for file, language in re.findall(r"`([\w/]+\.(?:py|yaml))`.*?```(\w+)", text, re.DOTALL):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (found,) = blocks(text, language)
        (tmp_path / file).write_text(found)
    importlib.invalidate_caches()
    commands = [shlex.split(line) for block in blocks(text, "bash") for line in block.splitlines()]
    assert len(commands) >= 4
    try:
        for command in commands:
            follow(command, monkeypatch, tmp_path)
    finally:
        sys.modules.pop("my_rule", None)
    assert "Traceback" not in capsys.readouterr().err


def follow(command, monkeypatch, folder):
    """Run a command as far as takes no training."""
    if command[0] == "pytest":
        assert command[1:3] == ["--pyargs", "lightning_fl.contract"]
        assert command[-1] in choices("aggregator")
        return
    assert command[0] == "lightning-fl"
    monkeypatch.setattr(sys, "argv", command[1:])
    if command[1] == "train" and "--help" not in command:
        words = [word.split(",") for word in command[2:] if word != "-m"]
        heads = [[word[0], *(f"{word[0].partition('=')[0]}={value}" for value in word[1:])] for word in words]
        for chosen in product(*heads):
            checked(list(chosen))
    elif command[1] == "tournament":
        entries = selected(tournament.arguments())
        assert "my_rule" in entries.rules or "my_rule" not in command
    elif command[1] == "worst":
        assert command[3] == "--budget"
        torch.testing.assert_close(rule_of(command[2], 5)(torch.ones(25, 3)), torch.ones(3))
    elif command[1] in ("list", "train"):
        monkeypatch.setattr(sys, "argv", command)
        try:
            main()
        except SystemExit as end:
            assert not end.code  # noqa: PT017
    elif given := reproduce.arguments():
        if given.table is None:  # lists them
            return
        table = Table.load(given.table)
        rows = reproduce.picked(given.rows, table.rows, "row")
        columns = reproduce.picked(given.columns, table.columns, "column")
        if table.own:
            grid = Grid(table, 1.0, [], [0], folder)
            assert len([grid.compose(cell) for cell in grid.cells(rows, columns, [0])]) == 6
