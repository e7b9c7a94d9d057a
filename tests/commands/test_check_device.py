"""lightning-fl check-device: what it prints and writes."""

import json
import sys
from functools import partial
from itertools import count

import pytest
import torch

from lightning_fl.commands import check_device
from lightning_fl.commands.check_device import main, shown

without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU")
RECORDS = [
    {"kind": "aggregator", "name": "krum", "type": "float32", "difference": 2e-7, "elsewhere": False, "agrees": True},
    {"kind": "aggregator", "name": "boba", "type": "float32", "difference": 0.5, "elsewhere": False, "agrees": False},
]


def broken(device):
    yield {"run": "a"}
    raise RuntimeError("no kernel image")


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """The command with parts of its own; gives what it printed and wrote."""
    parts = {"agreement": lambda _: iter(RECORDS), "speed": broken}
    monkeypatch.setattr(check_device, "PARTS", {name: name for name in parts})
    monkeypatch.setattr(check_device, "resolve_name", lambda path: parts[path.rpartition(".")[2]])

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["lightning-fl check-device", *words, f"--out={tmp_path / 'found.json'}"])
        main()
        return capsys.readouterr().out, json.loads((tmp_path / "found.json").read_text())

    return run


def test_a_part_that_fails_leaves_what_it_has_found_and_the_others(run):
    printed, written = run("--device=cpu", "--only=speed,agreement")
    assert written["about"]["torch"] == torch.__version__
    assert written["agreement"] == RECORDS
    assert written["speed"] == [{"run": "a"}, {"part": "speed", "error": "RuntimeError: no kernel image"}]
    assert "failed: speed: RuntimeError: no kernel image" in printed
    assert "1 of 2 agree with the CPU" in printed
    assert "differs: aggregator boba, float32: 5.0e-01" in printed


def test_a_part_that_is_cut_says_so(run, monkeypatch):
    """On a new machine that all of what was compared agree is no clean bill."""
    monkeypatch.setattr(check_device, "perf_counter", partial(next, count()))
    printed, written = run("--device=cpu", "--seconds=2", "--only=agreement")
    assert written["stopped"] == "agreement"
    assert "; stopped after 2 s, the rest was not tried)" in printed
    assert len(written["agreement"]) < len(RECORDS)


def test_no_part_begins_when_the_time_is_over(run):
    printed, written = run("--device=cpu", "--seconds=1e-9", "--only=agreement,speed")
    assert "agreement: no time left" in printed
    assert written["agreement"] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only=sped"], "part"),
        (["--only="], "--only needs parts separated by commas, got ''; valid: agreement, "),
        (["--device=tpu"], "device"),
        (["--device=cpu", "--seconds=0"], "--seconds must be above 0, got 0."),
        (["--device=cpu", "--seconds=nan"], "--seconds must be above 0, got nan."),
        pytest.param([], "needs an accelerator", marks=without_gpu),
        pytest.param(["--device=gpu"], "needs an accelerator", marks=without_gpu),
    ],
)
def test_what_cannot_be_done_is_said_before_anything(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["lightning-fl check-device", *words, f"--out={tmp_path / 'found.json'}"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_table_has_a_column_for_each_number():
    lines = shown("together", [{"processes": 4, "rounds per second": 1234.56}]).splitlines()
    assert [line.split() for line in lines if "1235" in line] == [["4", "1235"]]
