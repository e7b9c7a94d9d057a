"""The model and what training means; PyTorch alone, so that a client starts fast."""

import torch
import torch.nn.functional as F
from torch import nn


def make_model(seed: int) -> nn.Module:
    """A small network; no batch norm, whose statistics label skew would spoil."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor, steps: int, batch_size: int, rate: float) -> float:
    """Take some steps of SGD on random batches; gives the first batch's loss."""
    first = 0.0
    for step in range(steps):
        batch = torch.randperm(len(y))[:batch_size]
        loss = F.cross_entropy(model(x[batch]), y[batch])
        first = loss.item() if step == 0 else first
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= rate * parameter.grad
    return first


@torch.no_grad()
def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """Share of the samples that the model labels right."""
    return (model(x).argmax(1) == y).float().mean().item()
