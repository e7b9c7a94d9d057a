"""A federation small enough to think through: 3 classes, 2 features, a linear model of d = 9 parameters."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from lightning_fl import Aggregation, ServerOracle, Updates
from lightning_fl.adversary.base import AttackContext
from lightning_fl.client.gradient import Gradient
from lightning_fl.model_oracle import ModelOracle
from lightning_fl.network.dropout import KeyedDropout, client_keys, sample_keys
from lightning_fl.round import Round
from lightning_fl.samples import ClientBatch, Samples

CLASSES, D = 3, 9
CPU = torch.device("cpu")


def samples(per_class: int = 6, seed: int = 0) -> Samples:
    """Samples of each class around its own corner."""
    corners = torch.tensor([[2.0, 0.0], [0.0, 2.0], [-2.0, -2.0]])
    noise = torch.randn(CLASSES * per_class, 2, generator=torch.Generator().manual_seed(seed))
    targets = torch.arange(CLASSES).repeat_interleave(per_class)
    return Samples(corners[targets] + 0.3 * noise, targets, CLASSES)


def model(seed: int = 0, n_classes: int = CLASSES) -> nn.Module:
    """A linear model with seeded parameters."""
    with torch.random.fork_rng(devices=[]):
        linear = nn.Linear(2, n_classes)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in linear.parameters():
            parameter.copy_(0.1 * torch.randn(parameter.shape, generator=draw))
    return linear


def class_clients(data: Samples) -> ClientBatch:
    """One client per class, holding all of it."""
    indices = [(data.targets == z).nonzero().flatten() for z in range(data.n_classes)]
    return ClientBatch(data, indices, range(len(indices)))


def oracle(learning_rate: float = 0.1, index: int = 0, device: torch.device = CPU) -> ServerOracle:
    """A server that holds six samples of each class, in the round of that number."""
    classes = moved(class_clients(samples()), device)
    return ModelOracle(model().to(device), Gradient(), classes, Round(index, learning_rate, 0))


def moved(batch: ClientBatch, device: torch.device) -> ClientBatch:
    """Bring clients and their samples to a device."""
    return batch.to(device, batch.samples.to(device))


def context(
    rule: Callable[[Updates], Tensor] = lambda updates: updates.rows.mean(0), learning_rate: float = 0.1
) -> AttackContext:
    """What an attacker of this federation knows; its three Byzantine clients hold one class each."""
    batch = class_clients(samples(seed=1))
    return AttackContext(
        model(), Gradient(), batch, lambda updates: Aggregation(rule(updates)), Round(0, learning_rate, 0)
    )


@cache
def _class_gradients() -> Tensor:
    return Gradient().updates(model(), class_clients(samples()), Round(0, 0.1, 0)).updates


def honest_updates(h: int = 12, skew: float = 0.1, seed: int = 0) -> torch.Tensor:
    """(h, 9) gradients of honest clients: mixtures of the class gradients, and noise."""
    draw = torch.Generator().manual_seed(seed)
    shares = torch.rand(h, CLASSES, generator=draw) ** 4
    return shares / shares.sum(1, keepdim=True) @ _class_gradients() + skew * torch.randn(h, D, generator=draw)


def updates(h: int = 12) -> Updates:
    """`honest_updates` as the rules take them."""
    return Updates(honest_updates(h))


def slow_gradients(model: nn.Module, batch: ClientBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Take one ordinary backward pass per client; gives the (h, d) gradients and (h,) losses."""
    rows, losses = [], []
    parameters = [p for p in model.parameters() if p.requires_grad]
    keys = None if batch.drawing is None else client_keys(batch.ids, *batch.drawing)
    for i, index in enumerate(batch.indices):
        x, y = batch.samples.gather(index)
        with nullcontext() if keys is None else KeyedDropout(sample_keys(keys[i], len(index))):
            outputs = model(x)
        own: Any = getattr(model, "sample_losses", None)
        if own is not None:
            loss = own(outputs, y).mean()
        else:
            loss = -torch.log_softmax(outputs, 1)[torch.arange(len(y)), y].mean()
        rows.append(torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, parameters)]))
        losses.append(loss.detach())
    return torch.stack(rows), torch.stack(losses)
