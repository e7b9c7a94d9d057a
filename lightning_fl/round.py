"""The round that is under way, on which every draw and every step size depends."""

from dataclasses import dataclass

import torch

from lightning_fl import seeding


@dataclass(frozen=True)
class Round:
    """A round of a run.

    Args:
        index: Its number, from 0.
        learning_rate: The server's rate.
        seed: The run's seed.
    """

    index: int
    learning_rate: float
    seed: int

    def derive_seed(self, *purpose: str | int) -> int:
        """The seed of `generator`, for one purpose in this round."""
        return seeding.derive_seed(self.seed, *purpose, self.index)

    def generator(self, *purpose: str | int) -> torch.Generator:
        """A fresh generator for one purpose in this round."""
        return seeding.generator(self.seed, *purpose, self.index)
