"""Runs over several processes as people start them: by the command, by torchrun, on two nodes; and as they end."""

import csv
import json
import os
import socket
from pathlib import Path

import pytest
import torch
from pytorch_lightning.plugins.environments import LightningEnvironment

from lightning_fl.run.train import train
from lightning_fl.strategy.client_parallel import ClientParallel
from tests import training
from tests.starting import Started
from tests.strategy.killed import SMALL, settings

ROOT = Path(__file__).resolve().parents[2]


def start(*command, **more):
    """Start a command, with more in its environment."""
    environment = {name: value for name, value in os.environ.items() if name not in ("LOCAL_RANK", "WORLD_SIZE")}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"} | more
    return Started("-m", *command, cwd=ROOT, environment=environment)


def close(one, two):
    """Compare the records of two runs."""
    texts = [(folder / "metrics.csv").read_text().splitlines() for folder in (one, two)]
    rows, others = (list(csv.DictReader(text)) for text in texts)
    assert [row["round"] for row in rows] == [row["round"] for row in others] == [str(t + 1) for t in range(len(rows))]
    for row, other in zip(rows, others, strict=True):
        assert row.keys() == other.keys()
        for name in row:
            if not name.startswith("seconds") and row[name]:
                assert float(row[name]) == pytest.approx(float(other[name]), rel=1e-4, abs=1e-6), name


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run in one process that was never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    with training.quiet():
        train(settings(folder), folder, describe=False)
    return folder


@pytest.mark.slow
def test_a_process_that_dies_ends_the_run_which_goes_on_in_one_process(tmp_path, whole):
    dying = start("tests.strategy.killed", tmp_path)
    _, error = dying.communicate()
    assert dying.returncode in (1, 2)
    assert "Error: process" in error
    assert "ckpt_path=auto" in error
    assert "Traceback" not in error
    state = torch.load(tmp_path / "checkpoints/last.ckpt", weights_only=True)
    assert state["global_step"] == 4
    with training.quiet():
        summary = train(settings(tmp_path, ckpt_path="auto"), tmp_path, describe=False)
    assert summary["status"] == "completed"
    close(whole, tmp_path)
    one, two = (torch.load(folder / "checkpoints/last.ckpt", weights_only=True) for folder in (whole, tmp_path))
    for name, value in one["state_dict"].items():
        torch.testing.assert_close(two["state_dict"][name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_the_command_starts_processes_and_leaves_its_files_once(tmp_path, whole):
    run = start("lightning_fl", "train", *SMALL, "trainer.devices=2", f"hydra.run.dir='{tmp_path}/a folder'")
    output, error = run.communicate()
    assert (run.returncode, error) == (0, "")
    assert output.count("Clients  ") == output.count("completed after 8 rounds") == 1
    close(whole, tmp_path / "a folder")
    theirs = set(os.listdir(whole)) - {".contents.json"}  # its data are those of a class of these tests
    assert set(os.listdir(tmp_path / "a folder")) == theirs
    assert json.loads((tmp_path / "a folder/summary.json").read_text())["status"] == "completed"


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.mark.slow
def test_two_processes_started_by_torchrun(tmp_path, whole):
    elastic = ["torch.distributed.run", "--nproc_per_node=2", f"--master_port={free_port()}"]
    run = start(*elastic, "-m", "lightning_fl", "train", *SMALL, "trainer.devices=2", f"hydra.run.dir={tmp_path}/run")
    output, error = run.communicate()
    assert run.returncode == 0, error
    assert output.count("completed after 8 rounds") == 1
    close(whole, tmp_path / "run")


def two_nodes(*words):
    """Start a command as srun does on two nodes, by what it tells its tasks; gives what each prints."""
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "train", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "1"}
    job |= {"SLURM_LOCALID": "0", "SLURM_NODELIST": "localhost", "MASTER_PORT": str(free_port())}
    job |= {"MASTER_ADDR": "127.0.0.1"}
    tasks = [start(*words, **job, SLURM_PROCID=str(i), SLURM_NODEID=str(i)) for i in range(2)]
    printed = [task.communicate() for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0], printed
    return printed


@pytest.mark.slow
def test_two_nodes_started_by_slurm(tmp_path, whole):
    """SLURM itself is not there."""
    printed = two_nodes("lightning_fl", "train", *SMALL, "trainer.num_nodes=2", f"hydra.run.dir={tmp_path}/run")
    assert sum(output.count("completed after 8 rounds") for output, _ in printed) == 1
    close(whole, tmp_path / "run")


@pytest.mark.parametrize(("kind", "backend"), [("cpu", "gloo"), ("cuda", "nccl")])
def test_each_process_has_a_device_of_its_own_and_the_backend_for_it(kind, backend, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    devices = [torch.device(kind, i) for i in range(2)]
    strategy = ClientParallel(parallel_devices=devices, cluster_environment=LightningEnvironment())
    assert (strategy.root_device, strategy._get_process_group_backend()) == (devices[1], backend)


@pytest.mark.slow
def test_local_epochs_kept_momentum_a_window_and_any_number_of_attackers(tmp_path):
    words = ["data=synthetic", "data.n_train=400", "data.n_test=100", "data.features=20", "data.server_samples=2"]
    words += ["model=logistic", "model.in_features=20", "client=fedavg", "client.epochs=1", "client.batch_size=8"]
    words += ["client.momentum=0.9", "client.momentum_reset=false", "client.weight_decay=0.01", "client.clip=1"]
    words += ["federation.byzantine=replacement", "federation.n_clients=12", "federation.n_byzantine=3"]
    words += ["federation.participation=0.5", "federation.sampling=bernoulli", "adversary=mimic_learned"]
    words += ["adversary.from_round=3", "adversary.to_round=6", "aggregator=median", "f=1", "trainer.max_steps=8"]
    words += ["trainer.val_check_interval=4", "logger=none", "trainer.accelerator=cpu"]
    alone = start("lightning_fl", "train", *words, f"hydra.run.dir={tmp_path}/1")
    printed = two_nodes("lightning_fl", "train", *words, "trainer.num_nodes=2", f"hydra.run.dir={tmp_path}/2")
    assert [error for _, error in [alone.communicate(), *printed]] == ["", "", ""]
    assert alone.returncode == 0
    close(tmp_path / "1", tmp_path / "2")
