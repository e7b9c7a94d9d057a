"""Identically distributed clients: shuffle and deal."""

import torch
from torch import Tensor

from lightning_fl.partition.base import Partition


class Iid(Partition):
    """Shuffle all samples and give every client the same number, give or take one."""

    def assign(self, targets: Tensor, n_clients: int, n_classes: int, generator: torch.Generator) -> list[Tensor]:
        """Assign every sample to one client; see the base class."""
        return list(torch.randperm(len(targets), generator=generator).tensor_split(n_clients))
