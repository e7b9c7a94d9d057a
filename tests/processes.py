"""Small trainings, all in one process or each over several: ``python -m tests.processes FOLDER N_PROCESSES``.

``FOLDER/cases.json`` has the settings by name; ``FOLDER/N_PROCESSES.pt`` will have what came out.
"""

import json
import logging
import sys
import warnings
from datetime import timedelta
from functools import cached_property
from pathlib import Path

import lightning_fl  # noqa: F401  (first: makes torchvision importable beside a CPU-only torch)

# isort: split

import torch
import torch.distributed as dist
from omegaconf import OmegaConf
from torch import nn

from lightning_fl import FederatedDataModule, Samples, seeding
from lightning_fl.adversary.base import Adversary
from lightning_fl.callback.record import Record
from lightning_fl.errors import SettingError
from lightning_fl.run.assemble import make_data, make_module, make_trainer
from lightning_fl.strategy.client_parallel import ClientParallel
from lightning_fl.updates.exchange import same_start
from lightning_fl.updates.updates import Updates

CLASSES, SIDE = 3, 10


class Pictures(FederatedDataModule):
    """Grey squares, a third of them brighter on the left, a third on the right, on which every trigger fits."""

    def load(self):
        return self._draw("train", 230), self._draw("test", 31)

    def _draw(self, split, n):
        inputs = torch.randint(0, 128, (n, 1, SIDE, SIDE), generator=seeding.generator(7, split), dtype=torch.uint8)
        targets = torch.arange(n) % CLASSES
        inputs[targets == 0, :, :, :5] += 100
        inputs[targets == 1, :, :, 5:] += 100
        return Samples(inputs, targets, CLASSES)


class Hostile(Adversary):
    """First the mean at other lengths; then rows broken in a coordinate that one of several processes sees, and a huge
    one."""

    def attack(self, honest, n_byzantine, context):
        rows = honest.by_column(lambda rows: rows.mean(0)) * torch.arange(-3.0, n_byzantine - 3)[:, None]
        if context.round.index == 0:
            return rows
        rows[0, 0] = torch.nan
        rows[1, -1] = torch.inf
        rows[2] = 1e30
        return rows


def watch_rows():
    """Note who asks one of several processes for all columns."""
    asked = []

    def rows(updates):
        if updates.held.partial:
            asked.append(updates)
        return updates.held.whole(updates.here)

    Updates.rows = cached_property(rows)
    Updates.rows.__set_name__(Updates, "rows")
    return asked


def train(settings, n_processes, folder):
    """Train; what a second training, over any number of processes, must find."""
    config = OmegaConf.create(settings)
    record = Record(None)
    several = {"strategy": ClientParallel(timeout=timedelta(seconds=60))} if n_processes > 1 else {}
    module, data = make_module(config), make_data(config)
    trainer = make_trainer(
        config, folder, [record], devices=n_processes, enable_checkpointing=False, enable_progress_bar=False, **several
    )
    try:
        trainer.fit(module, datamodule=data, ckpt_path=config.ckpt_path)
    except SettingError as error:
        return {"refused": str(error)}
    if list(module.client.buffers()):  # what clients remember outlives an evaluation
        trainer.test(module, datamodule=data, verbose=False)
    path = folder / "saved.ckpt"
    trainer.save_checkpoint(path)
    found = {"diverged": module.diverged, "metrics": record.metrics.rows, "weights": record.weights.rows}
    found |= {"evaluation": module.evaluation, "confusion": module.confusion}
    found["parameters"] = torch.cat([p.detach().flatten() for p in module.model.parameters()])
    if trainer.world_size > 1:
        theirs = [torch.empty_like(found["parameters"]) for _ in range(n_processes)]
        dist.all_gather(theirs, found["parameters"])
        assert all(torch.equal(other, found["parameters"]) for other in theirs)
    if trainer.is_global_zero:
        saved = torch.load(path, weights_only=True)
        found["client"] = {name: value for name, value in saved["state_dict"].items() if name.startswith("client.")}
        found["callbacks"] = {
            name: state for name, state in saved["callbacks"].items() if not name.startswith("Record")
        }
    return found


def check_same_start(rank):
    """Parameters of any layout and buffers of any type are those of the first process afterwards."""

    def drawn(rank):
        model, draw = nn.Linear(4, 6), seeding.generator(rank, "start")
        model.weight = nn.Parameter(torch.randn(8, 6, generator=draw)[:4].T)
        model.bias = nn.Parameter(torch.randn(12, generator=draw)[::2])
        model.register_buffer("features", torch.randint(99, (3, 2), generator=draw).short())
        model.register_buffer("none", torch.empty(0))
        return model

    model = drawn(rank)
    same_start(model)
    for found, expected in zip(model.state_dict().values(), drawn(0).state_dict().values(), strict=True):
        assert torch.equal(found, expected)


def main():
    """Go through the cases."""
    folder, n_processes = Path(sys.argv[1]), int(sys.argv[2])
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    own = folder / str(n_processes)
    own.mkdir(exist_ok=True)
    cases = json.loads((folder / "cases.json").read_text())
    asked, found, whole = watch_rows(), {}, []
    for name, settings in cases.items():
        found[name] = train(settings, n_processes, own)
        whole += [name] if asked else []
        asked.clear()
    if n_processes > 1:
        check_same_start(dist.get_rank())
    if n_processes == 1 or dist.get_rank() == 0:
        torch.save([found, whole], folder / f"{n_processes}.pt")


if __name__ == "__main__":
    main()
