"""A partition of your own."""

import torch

from lightning_fl import Partition
from lightning_fl.partition.base import cut
from lightning_fl.ranges import NonNegativeFloat


class MyPartition(Partition):
    """Deal out shuffled samples, to client k (from 1) in proportion to k^-power.

    Args:
        power: 0 for equal shares, at least 0; larger ones are less equal.
    """

    def __init__(self, power: NonNegativeFloat = 1.0):
        self.power = power

    def assign(
        self, targets: torch.Tensor, n_clients: int, n_classes: int, generator: torch.Generator
    ) -> list[torch.Tensor]:
        """Give each client the numbers of its samples; a client without any is refused by the base class."""
        order = torch.randperm(len(targets), generator=generator)
        return cut(order, torch.arange(1, n_clients + 1).double() ** -self.power)
