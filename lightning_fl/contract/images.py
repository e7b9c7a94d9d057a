"""The federation of `world` as pictures, for attacks that put a trigger on images."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from lightning_fl import Samples

SIDE = 12


class Halves(nn.Module):
    """See a picture as two numbers: the mean of its left half and that of its right half."""

    def forward(self, x: Tensor) -> Tensor:
        """Take the means."""
        return x.mean((1, 2)).unflatten(1, (2, SIDE // 2)).mean(2)


def pictures(samples: Samples) -> Samples:
    """Paint both features of each sample over the halves of a picture of one channel."""
    row = samples.inputs.repeat_interleave(SIDE // 2, 1)
    return replace(samples, inputs=row[:, None, None, :].repeat(1, 1, SIDE, 1))


def seeing(model: nn.Module) -> nn.Module:
    """Let a model of two features see pictures; its parameters are unchanged."""
    return nn.Sequential(Halves(), model)


def bytes_of(n: int, seed: int = 0) -> Samples:
    """Random bytes as images of two channels, 12 x 14, standardised, in three classes."""
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randint(0, 200, (n, 2, SIDE, SIDE + 2), generator=draw, dtype=torch.uint8)
    return Samples(inputs, torch.arange(n) % 3, 3, (0.25, 0.5), (0.5, 0.2))
