"""What AGENTS.md tells assistants is true: its files exist and its commands can be run."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from lightning_fl.__main__ import main
from lightning_fl.run.check import checked

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "AGENTS.md").read_text()
(BLOCK,) = re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL)
COMMANDS = [shlex.split(line) for line in BLOCK.splitlines()]


def test_its_files_are_there():
    named = re.findall(r"`((?:[\w.-]+/)[\w./*-]*|[\w.]+\.(?:py|md|yaml))`", TEXT)
    assert len(named) > 25
    for name in named:
        place = name.replace("GROUP", "aggregator").replace("x.yaml", "krum.yaml").replace("test_x", "test_krum")
        inside = [ROOT, ROOT / "lightning_fl", ROOT / "scripts" / "tables"]
        assert any(list(folder.glob(place.rstrip("/"))) for folder in inside), name
    groups = re.findall(r"`(?:lightning_fl/)?(\w+)/`", TEXT)
    assert {"loss", "schedule", "contract"} <= set(groups)


def test_every_tool_it_names_is_installed_or_ours():
    assert {command[0] for command in COMMANDS} == {"pytest", "lightning-fl", "python", "ruff", "mypy"}
    for command in COMMANDS:
        assert all((ROOT / word.partition("::")[0]).exists() for word in command if word.endswith(".py")), command


@pytest.mark.parametrize("command", [c for c in COMMANDS if {"list", "train"} & set(c)], ids=" ".join)
def test_its_commands_can_be_run(command, monkeypatch, capsys):
    """One that trains is composed and checked, as it would be before the first round."""
    _, name, *arguments = command
    if name == "train" and "--help" not in arguments:
        assert checked(arguments).trainer.max_steps == 3
        return
    monkeypatch.setattr(sys, "argv", command)
    code = None
    try:
        main()
    except SystemExit as end:
        code = end.code
    assert not code
    assert "krum" in capsys.readouterr().out
