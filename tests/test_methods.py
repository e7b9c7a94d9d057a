"""Every method of conf/method trains, and resumes as if it had never stopped."""

import pytest
import torch
from omegaconf import OmegaConf

from lightning_fl import Federation
from lightning_fl.contract import conf
from lightning_fl.run.train import train
from tests import training

SMALL = [
    "data=synthetic",
    "data.features=6",
    "data.n_train=240",
    "data.n_test=30",
    "data.classes=3",
    "data.server_samples=4",
    "model.in_features=6",
    "model.hidden=[5]",
    "model.n_classes=3",
    "partition=iid",
    "federation.n_clients=10",
    "federation.n_byzantine=2",
    "federation.byzantine=replacement",
    "trainer.enable_progress_bar=false",
    "trainer.accelerator=cpu",
    "trainer.val_check_interval=2",
    "logger=none",
    "run_name=test",
]


def run(folder, choice, rounds, *more):
    """Train by a method, or another choice, with noise as attack; the run's final checkpoint."""
    config = OmegaConf.create(OmegaConf.to_container(conf.compose(*SMALL, "adversary=gaussian_updates", choice)))
    config.update({"run_dir": str(folder), "seed": 3})
    OmegaConf.update(config, "trainer.max_steps", rounds)
    for key, value in {"client.batch_size": 4, "client.steps": 3, "aggregator.f": 3}.items():
        if OmegaConf.select(config, key) is not None:
            OmegaConf.update(config, key, value)
    for key, value in more:
        OmegaConf.update(config, key, value)
    with training.quiet():
        summary = train(config, folder)
    assert summary["status"] == "completed"
    return torch.load(folder / "checkpoints/last.ckpt", weights_only=False)


@pytest.mark.parametrize(
    ("choice", "more"),
    [
        *((f"method={name}", ()) for name in conf.names("method")),
        *((f"server={name}", ()) for name in ("fedadagrad", "fedadam", "fedyogi")),
        *(("client=momentum", (("client.start", start),)) for start in ("zero", "first", "undamped")),
        ("adversary=label_flip", (("client", conf.compose("client=momentum").client),)),
        ("client=fedavg", (("client.sampling", "epoch"),)),
    ],
)
def test_resumes_bit_for_bit(tmp_path, choice, more):
    whole = run(tmp_path / "whole", choice, 5, *more)
    run(tmp_path / "half", choice, 2, *more)
    half = ("ckpt_path", str(tmp_path / "half/checkpoints/last.ckpt"))
    resumed = run(tmp_path / "resumed", choice, 5, *more, half)
    assert whole["global_step"] == resumed["global_step"] == 5
    assert whole["state_dict"].keys() == resumed["state_dict"].keys()
    for name, value in whole["state_dict"].items():
        assert torch.equal(value, resumed["state_dict"][name]), name
    assert any(not torch.equal(value, torch.zeros_like(value)) for value in whole["state_dict"].values())
    states = [checkpoint["optimizer_states"][0]["state"] for checkpoint in (whole, resumed)]
    torch.testing.assert_close(*states, rtol=0, atol=0)


@pytest.mark.parametrize("choice", ["method=byrd_saga", "method=frpg", "method=lfrpg", "method=rsa", "client=momentum"])
def test_absent_clients_keep_their_state(tmp_path, choice):
    away = ("federation.participation", 0.5)
    before, after = (run(tmp_path / str(t), choice, t, away)["state_dict"] for t in (2, 3))
    federation = Federation(10, 2, "replacement", "uniform", participation=0.5, seed=3)
    present = sorted(i for group in federation.participants(2) for i in group)
    assert len(present) == 5
    remembered = {name: value for name, value in after.items() if name.startswith("client.")}
    assert remembered
    for name, value in remembered.items():
        changed = (value != before[name]).flatten(1).any(1).nonzero().flatten().tolist()
        assert set(changed) <= set(present), name
        assert changed, name
