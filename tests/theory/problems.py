"""Losses with known constants, and attacks, for the papers' bounds."""

# ruff: noqa: N803 (the papers' letters)

from dataclasses import dataclass

import torch
from torch import Tensor

ATTACKS = ["against", "sum", "noise", "same", "zero", "nan", "huge", "mixed"]


def normal(draw: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=draw, dtype=torch.float64)


def uniform(draw: torch.Generator, low: float, high: float) -> float:
    return low + (high - low) * torch.rand((), generator=draw).item()


@dataclass
class Quadratics:
    """F_m(w) = (w - a_m)' A_m (w - a_m) / 2, symmetric A_m, and F = sum_m alpha_m F_m."""

    A: Tensor
    a: Tensor
    alphas: Tensor

    @classmethod
    def draw(cls, n: int, d: int, draw: torch.Generator, mu: float, L: float, spread: float, bend: float = 0.1):
        """Centres within about ``spread``, curvatures in [mu, L] that differ by up to ``bend`` (L - mu)."""
        bases = torch.linalg.qr(normal(draw, d, d)).Q + torch.zeros(n, 1, 1, dtype=torch.float64)
        shared, own = torch.rand(d, generator=draw), torch.rand(n, d, generator=draw)
        values = mu + (L - mu) * ((1 - bend) * shared + bend * own).double()
        alphas = 0.5 + torch.rand(n, generator=draw).double()
        return cls(bases * values[:, None, :] @ bases.mT, spread * normal(draw, n, d), alphas / alphas.sum())

    @property
    def curvatures(self) -> tuple[float, float]:
        """mu and L that hold for each F_m, hence for F."""
        values = torch.linalg.eigvalsh(self.A)
        return values.min().item(), values.max().item()

    def gradients(self, w: Tensor) -> Tensor:
        """Of each F_m, at w or at a point for each."""
        return torch.einsum("mij,mj->mi", self.A, w - self.a)

    def gradient(self, w: Tensor) -> Tensor:
        return self.alphas @ self.gradients(w)

    def loss(self, w: Tensor) -> float:
        return (self.alphas @ (self.gradients(w) * (w - self.a)).sum(1) / 2).item()

    @property
    def minimiser(self) -> Tensor:
        weighted = self.alphas[:, None, None] * self.A
        return torch.linalg.solve(weighted.sum(0), torch.einsum("mij,mj->i", weighted, self.a))


@dataclass
class Waves:
    """F_m(w) = sum_j (1 - cos(w_j - a_mj)): not convex, smooth with L = 1."""

    a: Tensor
    alphas: Tensor
    curvatures = (None, 1.0)

    @classmethod
    def draw(cls, n: int, d: int, draw: torch.Generator, spread: float):
        return cls(spread * normal(draw, n, d), torch.full((n,), 1 / n, dtype=torch.float64))

    def gradients(self, w: Tensor) -> Tensor:
        return (w - self.a).sin()

    def gradient(self, w: Tensor) -> Tensor:
        return self.alphas @ self.gradients(w)

    def loss(self, w: Tensor) -> float:
        return (self.alphas @ (1 - (w - self.a).cos()).sum(1)).item()


def forge(attack: str, honest: Tensor, objective: Tensor, b: int, draw: torch.Generator) -> Tensor:
    """What b Byzantine clients send."""
    d = honest.shape[1]
    if attack == "mixed":
        rows = [forge(ATTACKS[int(torch.randint(7, (), generator=draw))], honest, objective, 1, draw) for _ in range(b)]
        return torch.cat(rows)
    row = {
        "against": -objective,
        "sum": -3 * honest.sum(0),
        "same": torch.ones(d, dtype=torch.float64),
        "zero": torch.zeros(d, dtype=torch.float64),
        "nan": torch.full((d,), torch.nan, dtype=torch.float64),
        "huge": torch.full((d,), -1e30, dtype=torch.float64),
    }
    return 90**0.5 * normal(draw, b, d) if attack == "noise" else row[attack].expand(b, d)
