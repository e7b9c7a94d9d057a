"""Groups of clients, each of which prefers one class.

Minghong Fang, Xiaoyu Cao, Jinyuan Jia, Neil Zhenqiang Gong. Local Model Poisoning Attacks to Byzantine-Robust Federated
Learning. USENIX Security 2020. arXiv:1911.11815.
"""

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from lightning_fl.errors import SettingError
from lightning_fl.partition.base import Partition
from lightning_fl.ranges import Share


class BiasGroups(Partition):
    """Cut the clients into c equal groups; group z gets a sample of class z with probability q.

    With probability (1 - q) / (c - 1) the sample goes to each other group.  Inside its group each client gets it with
    the same probability, so that clients differ in size.

    Args:
        q: The bias, 0 to 1.  1 / c: as ``iid``; 1: each client holds one class.

    Raises:
        SettingError: If q is out of range; when samples are dealt, if the number of clients is not a multiple of c.
    """

    def __init__(self, q: Share = 0.5):
        self.q = q

    def assign(self, targets: Tensor, n_clients: int, n_classes: int, generator: torch.Generator) -> list[Tensor]:
        """Assign every sample to one client; see the base class."""
        if n_clients % n_classes:
            raise SettingError(
                f"bias_groups needs as many clients for each of {n_classes} classes, got {n_clients} clients; set "
                f"federation.n_clients to a multiple."
            )
        draws = torch.rand(len(targets), 2, dtype=torch.float64, generator=generator)
        clients = holders(targets.cpu(), draws, n_clients, n_classes, self.q)
        return list(clients.argsort(stable=True).split(clients.bincount(minlength=n_clients).tolist()))


def holders(
    targets: Int64[Tensor, " n"], draws: Float64[Tensor, "n 2"], n_clients: int, n_classes: int, q: float
) -> Int64[Tensor, " n"]:
    """Find the client of each sample from two numbers in [0, 1) that are drawn for it: for the group, and inside it."""
    other = (1 - q) / max(n_classes - 1, 1)  # the groups' intervals in [0, 1): `other` each, q for the sample's own
    low = targets * other
    before, after = draws[:, 0] / other, (draws[:, 0] - low - q) / other + targets + 1
    group = torch.where(draws[:, 0] < low, before, torch.where(draws[:, 0] > low + q, after, targets.double()))
    each = n_clients // n_classes
    return group.long().clamp(max=n_classes - 1) * each + (draws[:, 1] * each).long()
