"""Runs by Ray, each in a folder of its own that the caller's file system need not share."""

import csv
import os
import re
import signal
import sys
import threading
import time
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from lightning_fl import SettingError
from lightning_fl.commands import train as train_command
from lightning_fl.run.config import compose
from lightning_fl.run.identity import identity
from lightning_fl.run.lock import held
from lightning_fl.run.saved import SavedRun
from lightning_fl.run.train import train
from lightning_fl.study import ray_tasks, tournament
from lightning_fl.study.ray_tasks import Keeper, read_files, write_files
from lightning_fl.study.runner import Runner
from lightning_fl.study.worker import Run, places
from lightning_fl.updates.threads import one_thread
from tests.commands.command import outcome

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("data=synthetic", "data.n_train=300", "model=logistic", "federation.n_clients=10", "adversary=none")
SMALL = (*SMALL, "trainer.accelerator=cpu", "trainer.val_check_interval=100")
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason='needs ray (pip install "lightning-fl[ray]")')
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


def listed(label, folder, *overrides):
    """A run whose folder has its name."""
    overrides = (*SMALL, *overrides)
    return Run(label, overrides, folder / identity(compose(overrides)))


def test_a_run_s_files_are_read_checkpoint_first_and_written_summary_last(tmp_path, monkeypatch):
    contents = {
        "checkpoints/last.ckpt": b"c",
        "config.yaml": b"y",
        "metrics.csv": b"m",
        "summary.json": b"s",
    }
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    for name in (".lock", ".holder", "metrics.csv.part"):
        (tmp_path / name).write_bytes(b"not the run's")
    assert list(read_files(tmp_path).items()) == list(contents.items())
    written = []
    monkeypatch.setattr(ray_tasks.files, "write", lambda path, content: written.append(path.name))
    write_files(tmp_path, contents)
    assert written == ["config.yaml", "metrics.csv", "last.ckpt", "summary.json"]


def test_a_keeper_gives_what_is_new_once_and_forgets():
    keeper = Keeper()
    keeper.put("a", {"x": b"1"})
    keeper.put("a", {"x": b"2"})
    keeper.put("b", {})
    assert keeper.take() == {"a": {"x": b"2"}, "b": {}}
    assert keeper.take() == {}
    assert keeper.get("a") == {"x": b"2"}
    keeper.put("a", {"x": b"3"})
    keeper.forget("a")
    assert keeper.take() == {}
    assert keeper.get("a") is None


def test_without_ray_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(ray_tasks, "find_spec", lambda name: None)
    with pytest.raises(SettingError, match=r"--on ray needs ray, got none; pip install"):
        next(Runner(1, "ray").train([listed("x", tmp_path)]))
    assert list(Runner(1, "ray").train([])) == []


@pytest.mark.parametrize(("on", "address"), [("ray", None), ("ray://head:10001", "ray://head:10001")])
def test_ray_is_asked_at_its_address(monkeypatch, on, address):
    monkeypatch.setattr(ray_tasks, "Tasks", lambda *given: given)
    assert Runner(3, on)._engine(fresh=True) == (3, True, address)


@pytest.fixture(scope="module")
def cluster():
    """Ray as it starts on this machine, which has two cores for it, with the tests' packages on its path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        patch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 2}')
        patch.delenv("RAY_ADDRESS", raising=False)
        ray = ray_tasks._connect(None)
        yield ray
        ray.shutdown()


def worker():
    """The process in which Ray trains a run; None if there is none."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.joinpath("cmdline").read_bytes().startswith(b"ray::work"):
                return int(process.name)
        except OSError:
            continue
    return None


def wait_until(true, seconds=300):
    """Wait until something is so."""
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


def rows(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def in_one_thread():
    """Here and in what is started: on some processors sums of two threads differ in their last digits."""
    with one_thread():
        yield


@needs_ray
@pytest.mark.slow
@pytest.mark.usefixtures("in_one_thread")
def test_a_killed_worker_s_run_goes_on_from_its_checkpoint(cluster, tmp_path):
    """Beside it a run that fails, and one that is finished: the rest goes on."""
    long = listed("long", tmp_path, "trainer.max_steps=300", "checkpoint_every=5")
    broken = listed("broken", tmp_path, "aggregator=krum", "aggregator.f=99")
    found, before = {}, []

    def kill():
        """Kill the worker once the caller has a checkpoint of some rounds; note what these rounds recorded."""
        wait_until(lambda: (long.folder / "checkpoints" / "last.ckpt").exists())
        before.extend(rows(long.folder)[:5])
        os.kill(worker(), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    for ended in Runner(2, "ray").train([long, broken]):
        found[ended.run.label] = ended
    killer.join()
    assert found["broken"].summary is None
    assert "krum needs" in found["broken"].error
    assert found["long"].summary["status"] == "completed"
    assert found["long"].summary["rounds"] == 300
    assert len(before) == 5
    kept = [{name: row[name] for name in before[0]} for row in rows(long.folder)[:5]]
    assert kept == before  # with the seconds that each took: they were not trained again
    assert any(name.startswith("seconds/") for name in before[0])
    assert (long.folder / "train.log").read_text().count("completed after 300 rounds") == 1
    (tmp_path / "here").mkdir()
    train(compose(["logger=[]", *long.overrides, *places(tmp_path / "here")]), tmp_path / "here", describe=False)
    there, here = SavedRun.read(long.folder), SavedRun.read(tmp_path / "here")
    assert [row["loss"] for row in there.metrics] == [row["loss"] for row in here.metrics]
    assert there.summary["recall"] == here.summary["recall"]
    # A finished run is not trained again.
    (again,) = Runner(1, "ray").train([long])
    assert again.seconds == 0
    assert again.summary == found["long"].summary


@needs_ray
@pytest.mark.slow
def test_closing_stops_the_runs_after_their_round_and_they_go_on(cluster, tmp_path):
    long = listed("long", tmp_path, "trainer.max_steps=100000", "checkpoint_every=5")
    quick = listed("quick", tmp_path, "trainer.max_steps=200")
    with closing(Runner(2, "ray").train([long, quick])) as outcomes:
        assert next(outcomes).run is quick
        with pytest.raises(Timeout):
            FileLock(long.folder / ".lock", timeout=0).acquire()
    assert SavedRun.read(long.folder).status == "interrupted"
    assert (long.folder / "checkpoints" / "last.ckpt").exists()
    with held(long.folder):
        pass


@needs_ray
@pytest.mark.slow
def test_hydra_s_launcher_trains_in_a_process_of_ray(cluster, tmp_path, monkeypatch, capsys):
    """The function that trains is pickled by name; the table at the end is of all runs."""
    pytest.importorskip("hydra_plugins.hydra_ray_launcher")
    monkeypatch.chdir(tmp_path)
    words = ["-m", "hydra/launcher=ray", "+hydra.launcher.ray.remote.num_cpus=2", f"hydra.sweep.dir={tmp_path}/many"]
    words += [*SMALL, "logger=none", "aggregator=average,median", "trainer.max_steps=2"]
    monkeypatch.setattr(sys, "argv", ["train.py", *words])
    code, out, err = outcome(train_command.main, capsys)
    assert code == 0, err
    assert [SavedRun.read(tmp_path / "many" / str(i)).status for i in range(2)] == ["completed"] * 2
    _, _, table = out.partition("mean of 1 completed run. Rows: aggregator.")
    assert re.findall(r"^ +(average|median) +[\d.]+$", table, re.M) == ["average", "median"]


@needs_ray
@pytest.mark.slow
def test_a_tournament_s_runs_are_as_here(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(tournament, "TABLES", tmp_path / "kept")
    more = ["model=logistic", "federation.n_clients=8", "trainer.max_steps=2", "trainer.val_check_interval=2"]
    given = {"skew": ["iid"], "byzantine": [2], "seeds": [0], "rates": [0.1]}
    entries = tournament.Entries.choose(["average", "bulyan"], ["sign_flip"], more=more, **given)
    here, there = (tournament.Tournament(entries, tmp_path / name) for name in ("here", "there"))
    rows = list(there.play(there.cells(), Runner(2, "ray"), "1.2.3"))
    expected = list(here.play(here.cells(), Runner(), "1.2.3"))
    for key in ("status", "accuracy", "worst_recall", "reason"):
        assert {row["identity"]: row[key] for row in rows} == {row["identity"]: row[key] for row in expected}
    assert {row["status"] for row in rows} == {"completed", "refused"}
    assert there.missing(there.cells()) == []


@needs_ray
@pytest.mark.slow
def test_a_worker_that_dies_again_and_again_costs_its_call_alone(cluster, monkeypatch):
    monkeypatch.setattr(ray_tasks, "_RETRIES", 0)
    found = Runner(2, "ray").each(exec, [("import os; os._exit(9)",), ("1",)], lost=lambda code: f"lost: {code}")
    assert sorted(found, key=str) == [None, "lost: import os; os._exit(9)"]
