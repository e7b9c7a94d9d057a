"""Families of honest rows by which a rule is judged, drawn alike for everybody; part of ByzAttack-1."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_fl import seeding

_CLASSES = 10
Draw = torch.Generator


def _spread(h: int, f: int, d: int, draw: Draw) -> Tensor:
    """Independent normal entries."""
    return torch.randn(h, d, generator=draw)


def _skewed(h: int, f: int, d: int, draw: Draw) -> Tensor:
    """Clients that hold two classes of ten each: means of two of ten directions, and a little noise."""
    directions = torch.randn(_CLASSES, d, generator=draw)
    held = torch.rand(h, _CLASSES, generator=draw).argsort(1)[:, :2]
    return directions[held].mean(1) + 0.1 * torch.randn(h, d, generator=draw)


def _heavy(h: int, f: int, d: int, draw: Draw) -> Tensor:
    """Rows whose lengths have a heavy tail: normal ones over the root of a mean of two squares (Student's t, 2)."""
    return torch.randn(h, d, generator=draw) / torch.randn(h, 2, generator=draw).square().mean(1, keepdim=True).sqrt()


def _offset(h: int, f: int, d: int, draw: Draw) -> Tensor:
    """Rows that agree on most: normal ones about a common vector a hundred times as long."""
    return 100 * torch.randn(d, generator=draw) + torch.randn(h, d, generator=draw)


def _scaled(h: int, f: int, d: int, draw: Draw) -> Tensor:
    """Coordinates of unlike size, over four powers of ten."""
    return torch.randn(h, d, generator=draw) * 10 ** (4 * torch.rand(d, generator=draw) - 2)


def _two_camps(h: int, f: int, d: int, draw: Draw) -> Tensor:
    """As many honest rows as there are lies lie apart: the problem that proves that no rule is below f / (n - 2f)."""
    return torch.randn(d, generator=draw) * (torch.arange(h) >= h - f)[:, None] + 1e-3 * torch.randn(
        h, d, generator=draw
    )


FAMILIES: dict[str, Callable[[int, int, int, Draw], Tensor]] = {
    "spread": _spread,
    "skewed": _skewed,
    "heavy tails": _heavy,
    "offset": _offset,
    "unlike scales": _scaled,
    "two camps": _two_camps,
}


def drawn(family: str, h: int, f: int, d: int, seed: int = 0) -> Float[Tensor, "h d"]:
    """Draw the honest rows of a family.

    Args:
        family: Its name in `FAMILIES`.
        h: Honest rows.
        f: Byzantine ones.
        d: Length.
        seed: Seed of the draw.
    """
    return FAMILIES[family](h, f, d, seeding.generator(seed, "honest", family))
