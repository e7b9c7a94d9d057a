"""Extreme label skew: samples sorted by class and cut into equal blocks.

Sai Praneeth Karimireddy, Lie He, Martin Jaggi. Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing.
ICLR 2022. arXiv:2006.09365.
"""

import torch
from torch import Tensor

from lightning_fl.partition.base import Partition, shuffled_classes


class Sorted(Partition):
    """Sort all samples by class and give each client one block of the same number, give or take one.

    Block i goes to client i, so most clients hold one class, and those where a class ends two (or more, where a class
    is smaller than a block).  Inside a class the order is random, so the seed decides which of its samples a client
    holds.
    """

    def assign(self, targets: Tensor, n_clients: int, n_classes: int, generator: torch.Generator) -> list[Tensor]:
        """Assign every sample to one client; see the base class."""
        return list(torch.cat(shuffled_classes(targets, n_classes, generator)).tensor_split(n_clients))
