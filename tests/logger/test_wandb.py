"""Weights & Biases: online with a key, offline without."""

import json
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
import wandb
from pytorch_lightning.loggers import WandbLogger

from lightning_fl.commands import train
from lightning_fl.logger import wandb as ours
from lightning_fl.logger.wandb import Wandb, has_key, reachable, wandb_logger
from lightning_fl.study import tournament
from tests.commands.test_train import read
from tests.logger import offline


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A user without keys."""
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def modes(monkeypatch):
    """What each logger is made with; nothing is started, and the server answers."""
    made = []
    monkeypatch.setattr(ours, "reachable", lambda: True)

    def note(self, **settings):
        made.append(settings)

    monkeypatch.setattr(WandbLogger, "__init__", note)
    return made


def write_netrc(home, host="api.wandb.ai", mode=0o600):
    (home / ".netrc").write_text(f"machine {host}\n  login user\n  password 0123456789\n")
    (home / ".netrc").chmod(mode)


def test_no_key():
    assert not has_key()


def test_a_key_in_the_environment(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "0123456789")
    assert has_key()


@pytest.mark.parametrize(("host", "found"), [("api.wandb.ai", True), ("github.com", False)])
def test_a_key_left_by_wandb_login(home, host, found):
    write_netrc(home, host)
    assert has_key() is found


def test_a_key_left_by_wandb_login_on_windows(home):
    write_netrc(home)
    (home / ".netrc").rename(home / "_netrc")
    assert has_key()


def test_where_home_cannot_be_written_charts_are_staged_beside_the_run(tmp_path, modes, monkeypatch):
    monkeypatch.setenv("WANDB_DATA_DIR", "")  # so that it is as before after the test
    monkeypatch.delenv("WANDB_DATA_DIR")
    wandb_logger(str(tmp_path))
    assert "WANDB_DATA_DIR" not in os.environ
    monkeypatch.setattr(os, "access", lambda path, mode: path != Path.home())
    wandb_logger(str(tmp_path))
    assert os.environ["WANDB_DATA_DIR"] == str(tmp_path)


@pytest.mark.parametrize(
    ("host", "found"), [("wandb.example.org", True), ("wandb.example.org:8080", True), ("api.wandb.ai", False)]
)
def test_a_server_of_ones_own_has_a_key_of_its_own(home, host, found, monkeypatch):
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org:8080")
    write_netrc(home, host)
    assert has_key() is found


def test_a_netrc_elsewhere(home, monkeypatch):
    (home / "elsewhere").mkdir()
    write_netrc(home / "elsewhere")
    monkeypatch.setenv("NETRC", str(home / "elsewhere" / ".netrc"))
    assert has_key()


def test_a_broken_netrc_is_no_key(home):
    (home / ".netrc").write_text("machine\n\nnonsense nonsense")
    assert not has_key()


@pytest.mark.parametrize(
    ("key", "mode", "offline"),
    [
        (None, None, True),
        (None, "online", True),
        ("0123", None, False),
        ("0123", "online", False),
        ("0123", "shared", False),
        ("0123", "offline", True),
        ("0123", "dryrun", True),
    ],
)
def test_online_where_there_is_a_key_and_nobody_objects(key, mode, offline, modes, monkeypatch, tmp_path):
    for name, value in [("WANDB_API_KEY", key), ("WANDB_MODE", mode)]:
        if value:
            monkeypatch.setenv(name, value)
    wandb_logger(save_dir=str(tmp_path / "run"), project="p", name="n")
    (settings,) = modes
    assert settings["offline"] is offline
    assert (settings["project"], settings["name"]) == ("p", "n")
    assert settings["save_dir"] == str(tmp_path / "run")
    assert (tmp_path / "run").is_dir()


def test_offline_where_the_server_does_not_answer(modes, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("WANDB_API_KEY", "0123")
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    monkeypatch.setattr(ours, "reachable", lambda: False)
    wandb_logger(save_dir=str(tmp_path), project="p")
    assert modes[0]["offline"]
    assert capsys.readouterr().err == "Weights & Biases records offline: wandb.example.org does not answer.\n"


class Refuses(BaseHTTPRequestHandler):
    """Answers, and not what it was asked for."""

    def do_GET(self):
        self.send_error(401)

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("kind", ["refuses", "silent", "closed"])
def test_a_server_is_reachable_if_it_answers(kind, monkeypatch):
    monkeypatch.setattr(ours, "_PATIENCE", 0.3)
    with HTTPServer(("127.0.0.1", 0), Refuses) as server, socket.create_server(("127.0.0.1", 0)) as silent:
        answering = threading.Thread(target=server.handle_request, daemon=True)
        answering.start()
        port = (silent if kind == "silent" else server.socket).getsockname()[1]
        if kind == "closed":
            silent.close()
            port = 1
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{port}")
        assert reachable() == (kind == "refuses")


def test_a_run_that_the_server_cannot_make_is_recorded_offline(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(ours, "reachable", lambda: True)
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    tried = []

    def init(mode=None, **_):
        tried.append(mode)
        if mode != "offline":
            raise wandb.errors.CommError("giving up:\ndeadline exceeded")
        return SimpleNamespace(offline=True, project="p", settings=SimpleNamespace(sync_dir="x"))

    monkeypatch.setattr(wandb, "init", init)
    monkeypatch.setenv("WANDB_MODE", "online")  # Lightning changes the variable; so it is put back
    assert "offline" in wandb_logger(save_dir=str(tmp_path), project="p").place
    assert tried == [None, "offline"]
    assert "records offline: CommError: giving up: deadline exceeded." in capsys.readouterr().err


@pytest.mark.parametrize("key", [None, "0123"])
def test_disabled_means_disabled(key, modes, monkeypatch, tmp_path):
    # An offline logger would overrule WANDB_MODE=disabled and write files.
    if key:
        monkeypatch.setenv("WANDB_API_KEY", key)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    wandb_logger(save_dir=str(tmp_path), project="p")
    assert modes[0]["offline"] is False


def test_a_disabled_run_takes_everything_and_writes_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    logger = wandb_logger(save_dir=str(tmp_path / "run"), project="p")
    logger.log_metrics({"loss": 0.5}, step=1)
    logger.experiment.finish()
    wandb.teardown()  # it would remember the mode
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.slow
def test_an_offline_run_is_written(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_MODE", "offline")  # Lightning changes the variable; so it is put back
    logger = wandb_logger(save_dir=str(tmp_path / "run"), project="p", name="n")
    logger.log_metrics({"loss": 0.5}, step=1)
    logger.experiment.finish()
    wandb.teardown()
    assert list((tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb"))


@pytest.fixture
def command(typed, monkeypatch):
    """Train by a command line, offline; gives what it prints."""
    monkeypatch.setenv("WANDB_MODE", "offline")

    def run(*arguments):
        code, out, err = typed(train.main, "train.py", *arguments, "trainer.accelerator=cpu", "hydra.run.dir=x")
        wandb.teardown()
        assert code == 0, err
        return out

    return run


@pytest.mark.slow
def test_a_resumed_run_is_one_run_with_a_short_name(command, tmp_path):
    for rounds in (2, 3):
        small = ["data=synthetic", "model.hidden=[8]", "logger=wandb"]
        command(*small, f"trainer.max_steps={rounds}", "ckpt_path=auto")
    first, second = (offline.read(path) for path in sorted((tmp_path / "x").glob("wandb/offline-run-*/run-*.wandb")))
    assert first[0].run_id == second[0].run_id
    assert first[0].display_name == "synthetic hidden=[8] max_steps=2"
    losses = [[e["trainer/global_step"] for e in history if "loss" in e] for _, _, history in (first, second)]
    assert losses == [[1, 2], [3]]


@pytest.mark.slow
def test_a_tournaments_cells_are_runs_of_one_group(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    small = ["data=synthetic", "model.hidden=[8]", "trainer.max_steps=2", "trainer.accelerator=cpu", "logger=wandb"]
    row = tournament.result(small, tmp_path / "cup", "median, ipm")
    wandb.teardown()
    (path,) = (tmp_path / "cup").rglob("run-*.wandb")
    made, told, history = offline.read(path)
    assert (made.run_group, made.display_name, told["names"]["attack"]) == ("cup", "median, ipm", "ipm")
    assert [entry["final/accuracy"] for entry in history if "final/accuracy" in entry] == [row["accuracy"]]


@pytest.mark.slow
def test_recalls_and_weights_stand_in_one_chart_each(command, tmp_path):
    """Several loggers at once: each gets the run, and the first lines say where."""
    two = [
        "+logger.csv._target_=pytorch_lightning.loggers.CSVLogger",
        "+logger.csv.save_dir=${run_dir}/second",
    ]
    out = command("aggregator=boba", "trainer.max_steps=4", "trainer.val_check_interval=2", "logger=[wandb]", *two)
    (offline,) = (tmp_path / "x/wandb").glob("offline-run-*")
    before, _, _ = out.partition("Clients ")
    assert f"project lightning-fl, offline; wandb sync x/wandb/{offline.name} uploads the run" in before
    assert "CSV, x/second/" in before
    assert "logger=none turns them off" in before
    assert (tmp_path / "x/second/lightning_logs/version_0/metrics.csv").is_file()
    paths = sorted(offline.glob("files/media/table/charts/*.table.json"))
    assert [path.name.split("_")[0] for path in paths] == ["recall", "weight"]
    tables = [json.loads(path.read_text()) for path in paths]
    assert [table["columns"] for table in tables] == [["step", "lineKey", "lineVal"]] * 2
    recall, weight = ({(step, label): value for step, label, value in table["data"]} for table in tables)
    metrics, weights = (read(tmp_path / f"x/{name}.csv") for name in ("metrics", "weights"))
    evaluated = [row for row in metrics if row["accuracy"]]
    assert [int(row["round"]) for row in evaluated] == [2, 4]
    lines = {f"class {z}": f"recall/{z}" for z in range(10)} | {"accuracy": "accuracy"}
    expected = {
        (int(row["round"]), label): 100 * float(row[name]) for row in evaluated for label, name in lines.items()
    }
    first = json.loads((tmp_path / "x/summary.json").read_text())["first_evaluation"]
    expected |= {(0, f"class {z}"): 100 * value for z, value in enumerate(first["recall"])}
    assert recall == pytest.approx(expected | {(0, "accuracy"): 100 * first["accuracy"]})
    expected = {}
    for row in weights:
        honest, byzantine = ([100 * float(row[str(i)]) for i in ids] for ids in (range(100), range(100, 115)))
        expected[int(row["round"]), "honest, mean"] = sum(honest) / 100
        expected[int(row["round"]), "honest, smallest"] = min(honest)
        expected[int(row["round"]), "Byzantine, mean"] = sum(byzantine) / 15
        expected[int(row["round"]), "Byzantine, largest"] = max(byzantine)
    assert weight == pytest.approx(expected)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"offline": False, "url": "https://wandb.ai/me/p/runs/1"}, "project p, https://wandb.ai/me/p/runs/1"),
        ({"disabled": True}, "disabled by WANDB_MODE"),
    ],
)
def test_says_where_it_records(state, said, monkeypatch):
    monkeypatch.setattr(WandbLogger, "experiment", SimpleNamespace(project="p", **state))
    assert Wandb.place.fget(object.__new__(Wandb)) == f"Weights & Biases, {said}"
