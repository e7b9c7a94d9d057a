"""Runs found again by their settings: names, locks, several at a time, stopped and continued."""

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from lightning_fl import SettingError
from lightning_fl.run import command
from lightning_fl.run.check import checked
from lightning_fl.run.identity import identity
from lightning_fl.run.lock import BusyError, held
from lightning_fl.run.saved import last_checkpoint
from lightning_fl.study import processes, runner, worker
from lightning_fl.study.runner import Outcome, Progress, Runner
from lightning_fl.study.worker import Run
from tests.holding import elsewhere
from tests.study import fake as stand_in


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Replace the training; gives a maker of runs."""
    monkeypatch.setattr(processes, "work", stand_in.work)
    return lambda what, name=None: Run(what, (what,), tmp_path / (name or what))


@pytest.mark.parametrize("override", ["ckpt_path=free.ckpt", "run_dir=x", "++run_name=x", "hydra.run.dir=x"])
def test_runs_lie_and_start_where_they_are_put(override):
    with pytest.raises(SettingError, match=f"its own folder.*got {re.escape(override)}; leave it out"):
        checked(["aggregator=boba", override])


def test_a_folder_s_name_reaches_hydra_as_it_is(tmp_path):
    folder = tmp_path / "o'brien, ${x} = (1)"
    (read, *_) = OverridesParser.create().parse_overrides(worker.places(folder))
    assert read.value() == str(folder)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("client.foo=3", "there is no setting client.foo; valid: batch_size"),
        ("aggregator=bobo", "there is no aggregator bobo; did you mean boba"),
        ("trainer.max_steps=many", "needs a whole number"),
        ("server=[]", "a run needs a choice of server"),
    ],
)
def test_what_train_refuses_is_refused_here(override, message):
    with pytest.raises(SettingError, match=message):
        checked([override])


def test_each_run_ends_as_it_does_and_the_rest_goes_on(fake):
    planned = [fake("fail"), fake("complete"), fake("diverge")]
    found = {outcome.run.label: outcome for outcome in Runner(2).train(planned)}
    assert found["complete"].summary["status"] == "completed"
    assert found["diverge"].summary["status"] == "diverged"
    assert found["fail"].summary is None
    assert found["fail"].error.startswith("ValueError: the reason (exit code 2; ")
    assert "Traceback" in (found["fail"].run.folder / "train.log").read_text()


def test_a_finished_run_is_not_trained_again_nor_one_under_two_labels(fake):
    one = fake("complete")
    first, other = Runner().train([one, replace(one, label="other")])
    assert (other.run.label, other.summary, other.seconds) == ("other", first.summary, 0)
    (one.folder / "given.json").unlink()
    (second,) = Runner().train([one])
    assert second.summary == first.summary
    assert not (one.folder / "given.json").exists()


def test_a_worker_that_dies_costs_one_run(fake):
    dead, done = Runner().train([fake("die"), fake("complete")])
    assert (dead.summary, done.summary["status"]) == (None, "completed")
    assert dead.error.startswith("no output (killed; ")


def test_a_run_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    """In this process: what a worker does once it has begun."""
    overrides, told = ("data=synthetic", "seed=3"), []
    run = Run("x", overrides, tmp_path / "it's" / identity(checked(overrides)))
    run.folder.mkdir(parents=True)
    monkeypatch.setattr(command, "carry_out", told.append)
    worker.work(run)
    (config,) = told
    assert (config.seed, config.ckpt_path, config.run_dir) == (3, "auto", str(run.folder))
    assert not config.get("logger")
    assert config.data["_target_"].endswith(".Synthetic")


def test_a_run_whose_code_has_changed_since_it_was_listed_is_not_trained(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    file, overrides = tmp_path / "listed_rule.py", ["aggregator=median", "aggregator._target_=listed_rule.Mine"]
    file.write_text("from lightning_fl.aggregator.median import Median as Mine")
    run = Run("mine", tuple(overrides), tmp_path / identity(checked(overrides)), "cup")
    config = worker.settings(run)
    assert (config.run_dir, config.run_name, config.run_group) == (str(run.folder), "mine", "cup")
    file.write_text("from lightning_fl.aggregator.average import Average as Mine")
    with pytest.raises(SettingError, match="code or settings have changed since this run was listed"):
        worker.settings(run)


def test_a_worker_is_where_and_what_the_asking_process_is(fake, tmp_path, monkeypatch):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        monkeypatch.setenv("A_VARIABLE", name)
        run = fake("complete", f"run {name}")
        list(Runner().train([run]))
        given = json.loads((run.folder / "given.json").read_text())
        assert (given["here"], given["variable"]) == (str(tmp_path / name), name)


def test_a_run_that_another_process_trains_comes_last(fake):
    planned = [fake("complete", "theirs"), fake("complete", "ours")]
    with elsewhere(planned[0].folder):
        ours, theirs = Runner().train(planned)
    assert ours.summary
    assert (theirs.run, theirs.summary, theirs.error) == (planned[0], None, None)
    assert Progress(1, 1).line(theirs) == "[1/1] complete: another process trains it"


@pytest.mark.slow
def test_the_log_of_a_run_that_another_process_trains_stays(tmp_path):
    """By real workers."""
    overrides = ("data=synthetic", "model=logistic", "trainer.max_steps=1", "federation.n_clients=20", "f=3")
    run = Run("x", overrides, tmp_path / identity(checked(overrides)))
    log = run.folder / "train.log"
    with elsewhere(run.folder):
        log.write_text("theirs\n")
        (outcome,) = Runner().train([run])
        assert (outcome.summary, outcome.error, log.read_text()) == (None, None, "theirs\n")
    (outcome,) = Runner().train([run])
    assert outcome.error is None
    assert outcome.summary["status"] == "completed"
    assert "theirs" not in log.read_text()
    assert not log.stat().st_mode & 0o111


def test_a_stopped_run_whose_checkpoint_is_gone_begins_anew(tmp_path):
    checkpoint = last_checkpoint(tmp_path)
    checkpoint.parent.mkdir()
    for there in (True, False):
        (tmp_path / "summary.json").touch()
        checkpoint.touch() if there else checkpoint.unlink()
        worker.clear(tmp_path)
        assert (tmp_path / "summary.json").exists() == there


def test_stopping_ends_the_running_ones_gently(fake):
    planned = [fake("complete"), fake("wait")]
    outcomes = Runner(2).train(planned)
    next(outcomes)
    while not (planned[1].folder / "started").exists():
        time.sleep(0.01)
    with pytest.raises(BusyError), held(planned[1].folder):
        pass
    outcomes.close()
    assert json.loads((planned[1].folder / "summary.json").read_text())["status"] == "interrupted"
    assert planned[1].summary() is None
    with held(planned[1].folder):
        pass


def test_workers_share_the_cores(fake, monkeypatch):
    monkeypatch.setattr(runner, "n_threads", lambda: 7)
    monkeypatch.setattr(processes, "n_threads", lambda: 7)
    monkeypatch.setattr(runner, "n_cores", lambda: 8)
    assert str(Runner()) == ""
    assert str(Runner(3)) == "; 3 workers, 2 threads each, share 8 cores"
    assert str(Runner(7)) == "; 7 workers, 1 thread each, share 8 cores"
    assert str(Runner(7, "ray")) == " on ray"
    runs = {workers: fake("complete", f"run{workers}") for workers in (1, 2, 20)}
    for workers, run in runs.items():
        list(Runner(workers).train([run]))
    given = [json.loads((run.folder / "given.json").read_text())["threads"] for run in runs.values()]
    assert given == [7, 3, 1]
    with pytest.raises(SettingError, match="workers must be at least 1, got 0"):
        Runner(0)


def test_progress_says_how_long_the_rest_takes(fake):
    progress = Progress(112, workers=2)
    summary = {"status": "completed", "rounds": 200, "last_evaluation": {"accuracy": 0.918}}
    line = progress.line(Outcome(fake("IPM, BOBA, seed 0"), summary, seconds=122.0))
    assert line == "[  1/112] IPM, BOBA, seed 0: 91.8 % in 2 min 2 s; about 1 h 52 min left"
    line = progress.line(Outcome(fake("x"), None, "ValueError: no"))
    assert line == "[  2/112, 1 failed] x: failed: ValueError: no; about 1 h 51 min left"
    line = progress.line(Outcome(fake("y"), {**summary, "status": "diverged"}, seconds=2.0))
    assert "y: diverged after 200 rounds in 2 s" in line


def test_calls_in_this_process_and_in_others(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert list(Runner().each(divmod, [(7, 2), (9, 2)])) == [(3, 1), (4, 1)]
    assert sorted(Runner(2).each(divmod, iter([(7, 2), (9, 2), (11, 2), (13, 2)]))) == [(3, 1), (4, 1), (5, 1), (6, 1)]
    assert [path.samefile(tmp_path) for path in Runner(2).each(Path.cwd, [()])] == [True]
    with pytest.raises(ZeroDivisionError):
        list(Runner(2).each(divmod, [(1, 0)]))
    alone = [*Runner(1, fresh=True).each(os.getpid, [(), ()])]  # nothing of one call is left to the next
    assert len({*alone, os.getpid()}) == 3


def long():
    raise ValueError("x" * 10_000_000)


class OfTwo(Exception):  # noqa: N818
    """One that pickle cannot make again."""

    def __init__(self, what, why):
        super().__init__(f"{what}: {why}")


def awkward():
    raise OfTwo("a rule", "its reason")


@pytest.mark.parametrize(("call", "told"), [(long, "ValueError: xxx"), (awkward, "OfTwo: a rule: its reason")])
def test_any_error_of_a_call_arrives(call, told):
    """One longer than a pipe holds would wait there for ever."""
    with pytest.raises(RuntimeError, match=told) as error:
        list(Runner(2).each(call, [()] * 3))
    assert len(str(error.value)) < 20_000


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="Linux")
def test_workers_end_with_a_killed_parent_and_leave_nothing(tmp_path):
    work = "import os, time; open(f'{os.getpid()}', 'w').write(open('/proc/self/maps').read()); time.sleep(99)"
    code = f"from lightning_fl.study.runner import Runner\nlist(Runner(2).each(exec, [({work!r},)] * 2))"
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    deadline = time.monotonic() + 120
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)
    workers = [f"/proc/{path.name}" for path in tmp_path.iterdir()]
    left = set(re.findall(r"/dev/shm/sem\S+", "".join(path.read_text() for path in tmp_path.iterdir())))
    assert len(workers) == 2
    assert left
    parent.kill()
    parent.wait()
    while any(map(os.path.exists, [*workers, *left])) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not list(filter(os.path.exists, [*workers, *left]))
