"""Whether a device computes what the CPU does: every rule, attack and client, and runs that change over."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from lightning_fl.adversary.base import AttackContext
from lightning_fl.aggregator.base import aggregated
from lightning_fl.aggregator.trimmed_mean import TrimmedMean
from lightning_fl.client.base import Client
from lightning_fl.contract import conf
from lightning_fl.data.tensor_data import TensorData
from lightning_fl.federation import Federation
from lightning_fl.model_oracle import ModelOracle
from lightning_fl.network.parameters import trainable
from lightning_fl.round import Round
from lightning_fl.run.assemble import make_data, make_model, make_module, make_trainer
from lightning_fl.run.config import choices, compose
from lightning_fl.run.fit import silence
from lightning_fl.updates.columns import Layout
from lightning_fl.updates.layout import layout_of
from lightning_fl.updates.updates import Updates

CPU = torch.device("cpu")
ACCELERATORS = {"cuda": "gpu", "cpu": "cpu"}  # Lightning's names
ROUNDS = 3  # of every rule, attack and client: what it remembers counts, too
# A difference is told relative to the honest spread; beyond this it is another answer.
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-7}
# Settings of a run that leaves nothing.
ALONE = ["logger=none", "run_dir=unused", "run_name=check", "schedule=constant"]
QUIET: dict[str, Any] = {"limit_val_batches": 0, "enable_checkpointing": False, "enable_progress_bar": False}
# Runs that change over to the other device after half of their rounds.
RESUMED = {
    "boba, ipm": ["aggregator=boba", "adversary=ipm"],
    "centred clipping, momentum, alie": ["aggregator=centred_clipping", "client=momentum", "adversary=alie"],
    "nnm and trimmed mean, label flips, lenet": [
        "aggregator=nnm_trimmed_mean",
        "adversary=label_flip",
        "model=lenet",
        "client.batch_size=16",
        "federation.n_clients=20",
        "federation.n_byzantine=4",
        "f=4",
    ],
}


@dataclass
class Situation:
    """Twenty honest and five Byzantine clients of random pictures in ten classes, as a round has them on a device.

    Args:
        device: Where everything lies.
        dtype: float32 or float64.
    """

    device: torch.device
    dtype: torch.dtype

    def __post_init__(self) -> None:
        draw = torch.Generator().manual_seed(0)
        targets = torch.arange(500) % 10
        pictures = torch.randn(10, 1, 12, 12, generator=draw)[targets] + torch.randn(500, 1, 12, 12, generator=draw)
        everybody = Federation(25, 5, "replacement")
        self.data = TensorData((pictures, targets), (pictures, targets), federation=everybody, server_samples=5)
        self.data.prepare_data()
        self.data.setup()
        self.data.place(self.device, self.dtype)
        config = compose(["model=mlp", "model.in_features=144", "model.hidden=[32]"])
        self.model = make_model(config).to(self.device, self.dtype)

    @property
    def layout(self) -> Layout:
        """Which columns belong to which tensor of the model."""
        return layout_of(trainable(self.model))

    def client(self, name: str) -> Client:
        """A client of conf that is ready for its first round."""
        client: Client = conf.make("client", name, batch_size=4)
        client.prepare(self.model, self.data.everybody)
        return client.to(self.device)

    @cached_property
    def honest(self) -> Tensor:
        """The (20, d) honest updates, computed by the CPU whatever the device, so that all see the same."""
        if self.device != CPU:
            return Situation(CPU, self.dtype).honest.to(self.device)
        batch, client = self.data.round(0).honest, self.client("gradient")
        return client.updates(self.model, batch, Round(0, 0.1, 0)).updates

    def rows(self, t: int) -> Tensor:
        """The (25, d) updates of a round: honest ones, and hostile ones that a rule has to look at."""
        shift = 0.1 * torch.randn(len(self.honest), 1, generator=torch.Generator().manual_seed(t)).to(self.honest)
        honest = self.honest * (1 + shift)
        return torch.cat([honest, -3 * honest[:4], honest[:1] + honest.std()])

    def oracle(self, t: int) -> ModelOracle:
        """The server in round t."""
        return ModelOracle(self.model, self.client("gradient"), self.data.round(t).server, Round(t, 0.1, 0))

    def of_rule(self, name: str) -> list[Tensor]:
        """What a rule makes of some rounds."""
        rule, found = conf.make("aggregator", name, f=5), []
        for t in range(ROUNDS):
            rows, server = Updates(self.rows(t), ids=range(25), layout=self.layout), self.oracle(t)
            found.append(aggregated(rule, rows, server).update.clone())
            rule.on_train_batch_end(None, None, None, None, t)
        return found

    def of_attack(self, name: str, rare: Path) -> list[Tensor]:
        """What an attack sends in some rounds, against the trimmed mean."""
        attack, found = conf.make("adversary", name, **({"path": str(rare)} if name == "edge_case" else {})), []
        for t in range(ROUNDS if attack is not None else 0):
            batch, server, rule = self.data.round(t), self.oracle(t), TrimmedMean(5)

            def ask(updates: Updates, rule: TrimmedMean = rule, server: ModelOracle = server) -> Any:
                return aggregated(rule, updates, server)

            client = self.client("gradient")
            context = AttackContext(self.model, client, batch.byzantine, ask, server.round, honest_ids=batch.honest.ids)
            honest = Updates(self.rows(t)[:20], layout=self.layout)
            found.append(attack.attack(honest, 5, context).clone())
            attack.on_train_batch_end(None, None, None, None, t)
        return found

    def of_client(self, name: str) -> list[Tensor]:
        """What clients send in some rounds."""
        client = self.client(name)
        batches = (self.data.round(t).honest for t in range(ROUNDS))
        return [client.updates(self.model, batch, Round(t, 0.1, 0)).updates.clone() for t, batch in enumerate(batches)]


def differences(device: torch.device) -> Iterator[dict[str, Any]]:
    """Compare every rule, attack and client on the device with the CPU, a user's own included.

    Args:
        device: The device.

    Yields:
        One record each: kind, name, type, largest difference relative to the honest spread, whether it is within the
        tolerance, and the error, if one was raised.
    """
    with TemporaryDirectory() as folder:
        rare = Path(folder, "inputs.pt")
        torch.save(torch.randn(20, 1, 12, 12, generator=torch.Generator().manual_seed(5)), rare)
        for dtype in TOLERANCE:
            here, there = Situation(CPU, dtype), Situation(device, dtype)
            spread = float((here.honest - here.honest.mean(0)).norm(dim=1).square().mean().sqrt())
            for kind, names in {kind: choices(kind) for kind in ("aggregator", "adversary", "client")}.items():
                for name in names:
                    record: dict[str, Any] = {"kind": kind, "name": name, "type": str(dtype).removeprefix("torch.")}
                    try:
                        expected, found = (_asked(place, kind, name, rare) for place in (here, there))
                        gaps = [gap(a, b.to(CPU)) / spread for a, b in zip(expected, found, strict=True)]
                        record |= {"difference": max(gaps, default=0.0), "elsewhere": _elsewhere(found, device)}
                    except Exception as error:  # a user's own part may raise anything
                        record |= {"difference": None, "error": f"{type(error).__name__}: {error}"[:300]}
                    difference = record["difference"]
                    within = difference is not None and difference <= TOLERANCE[dtype]
                    yield record | {"agrees": within and not record["elsewhere"]}


def _asked(place: Situation, kind: str, name: str, rare: Path) -> list[Tensor]:
    if kind == "aggregator":
        return place.of_rule(name)
    return place.of_attack(name, rare) if kind == "adversary" else place.of_client(name)


def _elsewhere(found: list[Tensor], device: torch.device) -> bool:
    """Whether an answer lies on another device than what was asked about."""
    return any(answer.device.type != device.type for answer in found)


def gap(a: Tensor, b: Tensor) -> float:
    """The largest distance between two vectors or rows of the same number; entries that are no numbers must agree."""
    if not torch.equal(a.isfinite(), b.isfinite()):
        return float("inf")
    difference = (a.double() - b.double()).nan_to_num(0, 0, 0)
    return float(difference.reshape(-1, a.shape[-1]).norm(dim=1).max())


def resumed(device: torch.device, rounds: int = 12) -> Iterator[dict[str, Any]]:
    """Train short runs on the CPU alone, on the device alone, and half on each, in either order.

    Args:
        device: The device.
        rounds: How many, an even number.

    Yields:
        One record per run and order: accuracy, and how far its final parameters are from those of the run on the CPU,
        relative to how far these have come.
    """
    accelerator = ACCELERATORS[device.type]
    for name, overrides in RESUMED.items():
        start, whole = (_trained(overrides, [("cpu", n)]) for n in (1, rounds))
        moved = float((whole[0] - start[0]).norm())
        for order in [(accelerator, accelerator), ("cpu", accelerator), (accelerator, "cpu")]:
            found, accuracy = _trained(overrides, [(order[0], rounds // 2), (order[1], rounds)])
            yield {
                "run": name,
                "first half": order[0],
                "second half": order[1],
                "accuracy": accuracy,
                "accuracy on cpu": whole[1],
                "difference": float((found - whole[0]).norm()) / moved,
            }


def _trained(overrides: list[str], legs: list[tuple[str, int]]) -> tuple[Tensor, float]:
    """Train up to some rounds on each accelerator in turn; gives the final parameters and the accuracy."""
    found, accuracy = torch.empty(0), 0.0
    with TemporaryDirectory() as folder, silence():
        checkpoint = Path(folder, "last.ckpt")
        for accelerator, rounds in legs:
            config = compose([*ALONE, f"trainer.accelerator={accelerator}", *overrides])
            module, data = make_module(config), make_data(config)
            trainer = make_trainer(config, Path(folder), [], max_steps=rounds, **QUIET)
            trainer.fit(module, datamodule=data, ckpt_path=checkpoint if checkpoint.exists() else None)
            trainer.save_checkpoint(checkpoint)
            module.to(data.train.targets.device)  # Lightning has left it on the CPU
            accuracy = module.measured()["accuracy"]
            found = torch.cat([p.detach().to(CPU, torch.float64).flatten() for p in module.model.parameters()])
    return found, accuracy
