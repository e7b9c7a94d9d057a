"""The Start page is one path: its commands and its file, one after the other, in an empty folder."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from lightning_fl.__main__ import main
from tests.commands.command import outcome

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "start.md").read_text()
SMALL = ["trainer.max_steps=2", "model.hidden=[8]"]


@pytest.mark.slow
def test_from_nothing_to_a_table_of_ones_own(tmp_path, monkeypatch, capsys):
    """As the page has it, but for two rounds, a small model and, of the nine cells, those of one row."""
    monkeypatch.chdir(tmp_path)
    (table,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    short = table.replace("trainer.max_steps=40 trainer.val_check_interval=40", " ".join(SMALL))
    assert short != table
    Path("my_table.yaml").write_text(short)
    blocks = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    install, *commands = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert install == ["pip", "install", "lightning-fl"]
    said = []
    for tool, *words in commands:
        assert tool == "lightning-fl"
        more = SMALL if words[0] == "train" and "--help" not in words else []
        for beside in (["--dry-run"], ["--rows", "BOBA"]) if words[0] == "reproduce" else (more,):
            monkeypatch.setattr(sys, "argv", ["lightning-fl", *words, *beside])
            code, out, err = outcome(main, capsys)
            assert not code, err
            said.append(out)
    _, several, explained, listed, planned, last = said
    assert re.search(r"boba .*\n +krum .*\n +average ", several)
    assert "p_min" in explained
    assert re.search(r"^ *krum ", listed, re.MULTILINE)
    assert "9 cells to do" in planned
    assert re.search(r"BOBA +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+", last)
    assert len(list(tmp_path.glob("runs/**/report.html"))) == 1 + 3 + 3
    assert {path.suffix for path in Path("runs/my_table").glob("my_table.*")} >= {".md", ".csv", ".tex", ".html"}
