"""Label skew by degrees: two major classes per client, the others minor.

Hong-You Chen, Wei-Lun Chao. FedBE: Making Bayesian Model Ensemble Applicable to Federated Learning. ICLR 2021.
arXiv:2009.01974.  As in Wenxuan Bao, Jun Wu, Jingrui He. BOBA. AISTATS 2024. arXiv:2208.12932, Figure 12.
"""

import math
from typing import Annotated

import torch
from annotated_types import Ge, Le
from torch import Tensor

from lightning_fl.errors import SettingError
from lightning_fl.partition.base import Partition, cut, shuffled_classes


class Step(Partition):
    """Give each client alpha times as much of two major classes as of every other class.

    The clients take all ordered pairs of major classes (a, b) in lexicographic order, as many clients per pair as
    n_clients / c^2.  Class z is cut in proportion to the clients' weights 1 + (alpha - 1) ([z = a] + [z = b]), so a
    client of the pair (a, a) holds one major class, of weight 2 alpha - 1.

    Args:
        alpha: Size of a major class over that of a minor one, in [1, inf].  1: the same mixture for everybody.
            inf: major classes only, as ``pathological`` with pairs.

    Raises:
        SettingError: If alpha is out of range.
    """

    def __init__(self, alpha: Annotated[float, Ge(1), Le(math.inf)] = 4.0):
        self.alpha = alpha

    def assign(self, targets: Tensor, n_clients: int, n_classes: int, generator: torch.Generator) -> list[Tensor]:
        """Assign every sample to one client; see the base class."""
        if n_clients % n_classes**2:
            raise SettingError(
                f"step needs a multiple of c^2 = {n_classes**2} clients, one or more for each ordered pair "
                f"of {n_classes} classes, got {n_clients}; change federation.n_clients."
            )
        minor, more = (0.0, 1.0) if math.isinf(self.alpha) else (1.0, self.alpha - 1)
        weights = torch.full((n_classes, n_clients), minor, dtype=torch.float64)
        clients = torch.arange(n_clients)
        pairs = clients // (n_clients // n_classes**2)
        for major in (pairs // n_classes, pairs % n_classes):
            weights[major, clients] += more
        classes = shuffled_classes(targets, n_classes, generator)
        pieces = [cut(members, shares) for members, shares in zip(classes, weights, strict=True)]
        return [torch.cat(part) for part in zip(*pieces, strict=True)]
