"""Say who takes part, before the first round."""

import pytorch_lightning as pl
import torch

from lightning_fl.aggregator.guarantee import not_guaranteed
from lightning_fl.arguments import settings
from lightning_fl.module import FederatedModule
from lightning_fl.samples import Samples
from lightning_fl.tables import table


class Participants(pl.Callback):
    """Print clients, rule, attack, model and the class table when training starts."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Print."""
        assert isinstance(pl_module, FederatedModule)
        if trainer.is_global_zero:
            print(participants(pl_module), flush=True)


def participants(module: FederatedModule) -> str:
    """Describe who takes part, and what each class's samples look like from the clients."""
    data = module.data
    federation = data.federation
    honest, byzantine = len(federation.honest_ids), federation.n_byzantine
    adversary = f"{byzantine} Byzantine ({settings(module.adversary)})" if byzantine else "no Byzantine client"
    d = sum(p.numel() for p in module.model.parameters() if p.requires_grad)
    counts = data.clients.class_counts()[federation.honest_ids]
    sizes, held = counts.sum(1), (counts > 0).sum(1)
    server = "no samples"
    if len(data.server):
        noise = f", {data.server_noise} noise" if data.server_noise else ""
        server = f"{_range(data.server.sizes)} samples of each class{noise}"
    if byzantine:
        adversary += f", {federation.byzantine_share(data.clients.sizes):.1%} of the data weight"
    if byzantine and federation.byzantine_data == "iid":
        adversary += ", each with an iid share of all samples"
    present = federation.present
    if federation.participation < 1:
        drawn = {"everybody": f", {federation.n} in all", "bernoulli": ", each by itself"}.get(federation.sampling, "")
        mean = " on average" if federation.varies else ""
        adversary += f"; {present[0]} and {present[1]} of them per round{mean}{drawn}"
    corrupted = f"; a corruption of severity {data.corruption} on each client's" if data.corruption else ""
    samples = [f"{sum(data.clients.sizes):,} training"]
    samples += [] if data.validation is None else [f"{len(data.validation):,} validation"]
    absent = (data.test.targets.bincount(minlength=data.n_classes) == 0).nonzero().flatten().tolist()
    beyond = not_guaranteed(module.aggregator, federation, data.n_classes, module.trainer.max_steps)
    forged = module.adversary.note(*present) if module.adversary is not None and present[1] else None
    note = data.dealt.note(federation.n_clients, data.n_classes)
    untested = f"no test sample of class {', '.join(map(str, absent))}: its recall is not measured" if absent else None
    each = f"{_range(sizes.tolist())} samples and {_range(held.tolist())} classes per honest client"
    lines = [
        ("Clients", f"{honest} honest + {adversary}"),
        ("", forged),
        ("Server", f"{settings(module.aggregator)}, {server}"),
        ("", beyond),
        ("Model", f"{type(module.model).__name__}, d = {d:,}"),
        ("Data", f"{type(data).__name__}, {', '.join(samples)} and {len(data.test):,} test samples{corrupted}"),
        ("", _inputs(data.train)),
        ("", untested),
        ("Partition", f"{settings(data.partition)}: {each}"),
        ("", note),
    ]
    said = [f"{heading:11}{text}" for heading, text in lines if text]
    rows = [
        [
            str(z) if data.class_names is None else f"{z} {data.class_names[z]}",
            str(int(column.sum())),
            str(int((column > 0).sum())),
            _range(column[column > 0].tolist()),
        ]
        for z, column in enumerate(counts.T)
    ]
    shown = rows if len(rows) <= 20 else [*rows[:10], ["..."] * 4, *rows[-5:]]
    return "\n".join([*said, "", table(["class", "samples", "held by clients", "samples per holder"], shown)])


def _inputs(samples: Samples) -> str:
    """Say of which shape and scale inputs are when the model gets them."""
    x, shape = samples.inputs, f"inputs of shape {tuple(samples.inputs.shape[1:])}"
    if x.dtype == torch.uint8:
        return f"{shape}: bytes divided by 255{', standardised' if samples.std != (1.0,) else ''}"
    low, high = x.aminmax()
    if x.is_floating_point():
        return f"{shape}: floats from {low:.3g} to {high:.3g}, as they are"
    return f"{shape}: whole numbers from {low} to {high:,}, as tokens"


def _range(values: list[int]) -> str:
    if not values:
        return "0"
    return f"{min(values)}" if min(values) == max(values) else f"{min(values)} to {max(values)}"
