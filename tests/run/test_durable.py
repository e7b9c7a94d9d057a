"""Runs that are stopped, killed, damaged or started twice, from the command line."""

import csv
import json
import os
import re
import resource
import shutil
import signal
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch

import lightning_fl
from lightning_fl.aggregator.average import Average
from lightning_fl.commands import train
from lightning_fl.run import train as run_train
from tests.holding import elsewhere
from tests.starting import Started
from tests.test_methods import SMALL

ROOT = Path(lightning_fl.__file__).parents[1]
# Noise as attack, clients and a server with a memory, evaluations and checkpoints that fall together now and then.
RUN = [*SMALL, "method=byrd_saga", "adversary=gaussian_updates", "client.batch_size=4", "server.momentum=0.9"]
RUN += ["checkpoint_every=3", "ckpt_path=auto", "trainer.max_steps=8"]


@pytest.fixture
def command(typed):
    return partial(typed, train.main, "train.py", *RUN)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run with averaging that was never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HYDRA_FULL_ERROR", "")
        patch.setattr(sys, "argv", ["train.py", *RUN, *PLAIN])
        train.main()
    return folder / "x"


def start(folder, *arguments):
    """Run a command line in a process of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return Started(ROOT / "scripts" / "train.py", *RUN, *arguments, cwd=folder, environment=environment)


def files(folder):
    """What a run has left, without times and places."""
    left = {"weights.csv": (folder / "weights.csv").read_bytes()}
    with (folder / "metrics.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    timeless = [i for i, name in enumerate(rows[0]) if not name.startswith("seconds/")]
    left["metrics.csv"] = [[row[i] for i in timeless] for row in rows]
    left["summary.json"] = json.loads((folder / "summary.json").read_text()) | {"seconds": None, "provenance": None}
    checkpoint = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    left["model"] = {name: value.tolist() for name, value in checkpoint["state_dict"].items()}
    left["optimizer"] = str(checkpoint["optimizer_states"])
    left["names"] = sorted(os.listdir(folder))
    return left


def same(one, other):
    ours, theirs = files(one), files(other)
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert ours[name] == theirs[name], name


def signalled(monkeypatch, at, *signals):
    """Let signals come in a round."""
    aggregate = Average.aggregate

    def interrupted(self, updates, server):
        if server.round.index == at - 1:
            for number in signals:
                signal.raise_signal(number)
        return aggregate(self, updates, server)

    monkeypatch.setattr(Average, "aggregate", interrupted)


PLAIN = ["aggregator=average", "hydra.run.dir=x"]


@pytest.mark.parametrize(("number", "name", "code"), [(signal.SIGTERM, "SIGTERM", 143), (signal.SIGINT, "Ctrl-C", 130)])
def test_a_signal_saves_the_round_and_the_same_command_goes_on(
    command, monkeypatch, tmp_path, whole, number, name, code
):
    with monkeypatch.context() as patch:
        signalled(patch, 5, number)
        stopped = command(*PLAIN)
    assert stopped[0] == code
    assert f"{name}: stopping after this round" in stopped[2]
    summary = json.loads((tmp_path / "x" / "summary.json").read_text())
    assert (summary["status"], summary["reason"], summary["rounds"]) == ("interrupted", f"stopped by {name}", 5)
    assert command(*PLAIN)[0] == 0
    same(tmp_path / "x", whole)
    assert command(*PLAIN)[0] == 0  # once more changes nothing
    same(tmp_path / "x", whole)


def test_the_second_ctrl_c_exits_at_once(command, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        signalled(patch, 5, signal.SIGINT, signal.SIGINT)
        assert command(*PLAIN)[0] == 130
    assert not (tmp_path / "x" / "summary.json").exists()
    assert torch.load(tmp_path / "x/checkpoints/last.ckpt", weights_only=True)["global_step"] == 3
    assert command(*PLAIN)[0] == 0


def test_ctrl_c_before_the_first_round_is_130_too(command, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("lightning_fl.module.FederatedModule.setup", interrupted)
    before = signal.getsignal(signal.SIGINT)
    assert command(*PLAIN)[0] == 130
    signal.signal(signal.SIGINT, before)


def test_a_longer_run_goes_on_where_a_shorter_one_ended(command, tmp_path, whole):
    assert command(*PLAIN, "trainer.max_steps=5")[0] == 0
    assert command(*PLAIN)[0] == 0
    same(tmp_path / "x", whole)


def test_a_new_run_does_not_replace_another(command, tmp_path):
    assert command(*PLAIN)[0] == 0
    before = files(tmp_path / "x")
    for given in ("seed=5", "trainer.max_steps=3"):
        code, _, err = command(*PLAIN, given, "ckpt_path=null")
        assert code == 2
        assert err.endswith(
            f"a run needs a folder of its own, got {tmp_path / 'x'} with the summary.json of another; continue that "
            "one with ckpt_path=auto, or choose another folder (hydra.run.dir=FOLDER; of -m, hydra.sweep.dir=FOLDER).\n"
        )
    assert files(tmp_path / "x") == before
    (tmp_path / "x" / "summary.json").unlink()
    code, _, err = command(*PLAIN, "ckpt_path=null")
    assert code == 2
    assert "x with the last.ckpt of another" in err
    assert command(*PLAIN, "ckpt_path=x/checkpoints/last.ckpt")[0] == 0
    assert files(tmp_path / "x") == before


def test_a_run_leaves_nothing_of_one_killed_before_its_first_checkpoint(command, monkeypatch, tmp_path, whole):
    with monkeypatch.context() as patch:
        signalled(patch, 1, signal.SIGINT, signal.SIGINT)
        assert command(*PLAIN, "seed=5")[0] == 130
    assert command(*PLAIN, "ckpt_path=null")[0] == 0
    same(tmp_path / "x", whole)


@pytest.mark.parametrize(
    ("arguments", "setting"), [([], "hydra.run.dir"), (["-m", "hydra.run.dir=x"], "hydra.sweep.dir")]
)
def test_auto_needs_a_folder(command, tmp_path, arguments, setting):
    code, _, err = command(*arguments, "aggregator=average")
    assert code == 2
    needed = f"ckpt_path=auto goes on in the folder of the run, got a new folder for each call; set {setting}=FOLDER.\n"
    assert err.endswith(needed)
    assert f"Error: {needed}" in err


def test_auto_goes_on_with_the_run_s_own_settings(command):
    assert command(*PLAIN)[0] == 0
    code, _, err = command("aggregator=median", "hydra.run.dir=x")
    assert code == 2
    assert "x/config.yaml: aggregator: median: middle=upper, there average" in err


def test_a_second_process_is_refused(command, tmp_path):
    with elsewhere(tmp_path / "x") as other:
        code, _, err = command(*PLAIN)
    assert code == 2
    assert err.startswith(f"Error: {tmp_path / 'x'} is in use: process {other.pid} on ")
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "x" / "metrics.csv").exists()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("null", r"a run needs a folder of its own, got .*x with the summary.json of another"),
        ("auto", r"ckpt_path continues with a run's own settings .* aggregator: average, there median"),
    ],
)
def test_another_run_that_comes_while_the_data_are_fetched_stays(command, monkeypatch, tmp_path, path, message):
    """The folder is looked at again once it is locked."""
    assert command("aggregator=median", "hydra.run.dir=x", "seed=3")[0] == 0
    (tmp_path / "x").rename(tmp_path / "y")
    check = run_train.check_together

    def fetching(*parts):
        shutil.copytree(tmp_path / "y", tmp_path / "x", dirs_exist_ok=True)
        check(*parts)

    monkeypatch.setattr(run_train, "check_together", fetching)
    code, _, err = command(*PLAIN, f"ckpt_path={path}")
    assert code == 2
    assert re.search(message, err)
    ours, theirs = (
        {path.relative_to(top): path.read_bytes() for path in top.rglob("*") if path.is_file()}
        for top in (tmp_path / "x", tmp_path / "y")
    )
    assert ours == theirs


DAMAGES = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "zeroed": lambda content: bytes(len(content)),
    "flipped": lambda content: content[:40] + bytes([content[40] ^ 128]) + content[41:],
    "another file": lambda content: b'{"a": "text"}, [and\nmore',
}


def test_damaged_files_end_in_one_line(command, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        signalled(patch, 5, signal.SIGINT)
        command(*PLAIN)
    for name in ("checkpoints/last.ckpt", "config.yaml", "metrics.csv", "weights.csv"):
        path = tmp_path / "x" / name
        content = path.read_bytes()
        for kind, damage in DAMAGES.items():
            path.write_bytes(damage(content))
            if name == "config.yaml" and kind == "cut":
                continue  # still a configuration, of another run
            code, _, err = command(*PLAIN)
            assert code == 2, (name, kind)
            assert err.startswith("Error: "), (name, kind)
            assert len(err.splitlines()) == 1, (name, kind, err)
            assert f"x/{name}" in err, (name, kind, err)
            assert re.search("move it away|remove it|train the run again", err), (name, kind, err)
        path.write_bytes(content)
    assert command(*PLAIN)[0] == 0


def test_a_disk_without_room_ends_in_one_line_and_the_run_goes_on_later(command, tmp_path):
    """The system lets no file of this process grow beyond what a configuration needs."""
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8000, most[1]))
    try:
        code, _, err = command(*PLAIN)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert code == 2, err
    (line,) = [line for line in err.splitlines() if line.startswith("Error: ")]
    assert line.endswith(
        "last.ckpt cannot be written: File too large; fix that, then run this again; of a run, repeat the command with "
        "ckpt_path=auto and hydra.run.dir=FOLDER to continue from the last checkpoint."
    )
    assert "Traceback" not in err
    assert os.listdir(tmp_path / "x" / "checkpoints") == []
    assert command(*PLAIN)[0] == 0


def test_a_run_goes_on_with_the_code_and_files_that_it_began_with(command, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shortened.py").write_text("from lightning_fl.aggregator.average import Average as Mine\n")
    table, code = tmp_path / "split.csv", tmp_path / "shortened.py"
    table.write_text("sample,client\n" + "".join(f"{i},{i % 6}\n" for i in range(240)))
    mine = [*PLAIN, "partition=from_file", f"partition.path={table}", "aggregator._target_=shortened.Mine"]
    mine += ["federation.n_clients=6", "federation.n_byzantine=0", "adversary=none"]
    assert command(*mine, "trainer.max_steps=2")[0] == 0
    assert command(*mine, "trainer.max_steps=3")[0] == 0
    for path, name in [(table, "partition.path"), (code, "aggregator")]:
        before = path.read_text()
        path.write_text(before.replace("0,0\n", "0,5\n", 1) if path == table else f"{before}# edited\n")
        exit_code, _, err = command(*mine, "trainer.max_steps=4")
        assert exit_code == 2
        assert f"the code and files that a run began with, got others for {name} than" in err
        path.write_text(before)
    assert command(*mine, "trainer.max_steps=4")[0] == 0


def test_a_checkpoint_without_its_rows_still_has_a_result(command, tmp_path):
    assert command(*PLAIN, "trainer.max_steps=4")[0] == 0
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "x/checkpoints/last.ckpt").rename(tmp_path / "elsewhere/best.ckpt")
    (tmp_path / "x").rename(tmp_path / "gone")
    code, _, err = command(*PLAIN, "ckpt_path=elsewhere/best.ckpt", "trainer.max_steps=4", "hydra.run.dir=y")
    assert code == 0
    assert "its first 4 rows are lost" in err
    found, whole = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("y", "gone"))
    assert (found["rounds"], found["accuracy"], found["recall"]) == (4, whole["accuracy"], whole["recall"])


@pytest.mark.slow
def test_a_process_that_is_killed_then_stopped_goes_on_to_the_same_end(command, tmp_path):
    """The same command three times: SIGKILL, SIGTERM, and left alone."""
    rounds = "trainer.max_steps=150"
    assert command("aggregator=average", rounds, "hydra.run.dir=whole")[0] == 0
    process, checkpoint = start(tmp_path, *PLAIN, rounds), tmp_path / "x/checkpoints/last.ckpt"
    wait_until(checkpoint.exists, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    process, before = start(tmp_path, *PLAIN, rounds), checkpoint.stat().st_mtime_ns
    wait_until(lambda: checkpoint.stat().st_mtime_ns != before, process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode == 143, err
    summary = json.loads((tmp_path / "x" / "summary.json").read_text())
    assert summary["reason"] == "stopped by SIGTERM"
    assert torch.load(checkpoint, weights_only=True)["global_step"] == summary["rounds"] > 0
    assert command(*PLAIN, rounds)[0] == 0
    same(tmp_path / "x", tmp_path / "whole")


def wait_until(condition, process):
    """Look every few milliseconds, until a process has ended."""
    deadline = time.monotonic() + 200
    while not condition() and process.returncode is None and time.monotonic() < deadline:
        time.sleep(0.005)
