"""Identically distributed clients with rare classes, as FLPoison's class-imbalanced iid."""

import torch
from torch import Tensor

from lightning_fl.errors import SettingError
from lightning_fl.partition.base import Partition, shuffled_classes
from lightning_fl.ranges import Share


class Imbalanced(Partition):
    """Deal every class evenly, and let each client keep fewer and fewer samples of each further class.

    Of the n_z samples of class z = 0..c-1 that a client is dealt it keeps max(1, int(gamma^(z / (c - 1)) n_z)), drawn
    at random.  Nobody holds the others.  All clients have the same skew: the federation is imbalanced, not
    heterogeneous, and the test set is as it was.

    Args:
        gamma: Share that is kept of the last class, 0 to 1.  1: everything.

    Raises:
        SettingError: If gamma is out of range; when samples are dealt, if there is only one class.
    """

    covering = False

    def __init__(self, gamma: Share = 0.01):
        self.gamma = gamma

    def assign(self, targets: Tensor, n_clients: int, n_classes: int, generator: torch.Generator) -> list[Tensor]:
        """Assign every sample that is kept to one client; see the base class."""
        if n_classes < 2:
            raise SettingError(
                f"imbalanced needs at least 2 classes, got {n_classes} for {n_clients} clients; choose another "
                f"partition."
            )
        dealt = [members.tensor_split(n_clients) for members in shuffled_classes(targets, n_classes, generator)]
        return [
            torch.cat([part[: kept(len(part), z, n_classes, self.gamma)] for z, part in enumerate(own)])
            for own in zip(*dealt, strict=True)
        ]


def kept(n: int, z: int, n_classes: int, gamma: float) -> int:
    """Count how many of its n samples of class z a client keeps.

    >>> [kept(n, z, 4, 0.1) for z, n in enumerate([7, 0, 5, 9])]
    [7, 0, 1, 1]
    """
    return max(1, int(gamma ** (z / (n_classes - 1)) * n)) if n else 0
