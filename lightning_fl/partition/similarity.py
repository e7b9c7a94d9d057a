"""Label skew between identical and sorted clients, as byzfl spreads its data (gamma similarity)."""

import torch
from jaxtyping import Int64
from torch import Tensor

from lightning_fl.partition.base import Partition
from lightning_fl.ranges import Share


class Similarity(Partition):
    """Deal a share gamma of the samples at random, and the others sorted by class.

    Of all N samples, shuffled, the first int(N gamma) are cut into equal parts, one per client.  The others, sorted by
    class and then by number, are cut likewise, and every client holds one part of each.  Where a cut does not come out
    even, the first clients get one sample more.

    Args:
        gamma: Share that is dealt at random, 0 to 1: 0 is ``sorted``, 1 is ``iid``.

    Raises:
        SettingError: If gamma is out of range.

    Note:
        byzfl deals data to honest clients only, which is ``federation.byzantine=supplement`` here.
    """

    def __init__(self, gamma: Share = 0.5):
        self.gamma = gamma

    def assign(self, targets: Tensor, n_clients: int, n_classes: int, generator: torch.Generator) -> list[Tensor]:
        """Assign every sample to one client; see the base class."""
        order = torch.randperm(len(targets), generator=generator)
        m = int(len(targets) * self.gamma)
        order[:m] = order[:m][torch.randperm(m, generator=generator)]
        return dealt(targets.cpu(), order, m, n_clients)


def dealt(targets: Int64[Tensor, " n"], order: Int64[Tensor, " n"], m: int, n_clients: int) -> list[Tensor]:
    """Cut the first m of ``order`` as they stand, and the others sorted by class and number.

    >>> dealt(torch.tensor([1, 0, 1, 0]), torch.tensor([3, 2, 1, 0]), 2, 2)  # 3 | 2, then 1 (class 0) | 0 (class 1)
    [tensor([3, 1]), tensor([2, 0])]
    """
    rest = order[m:].sort().values
    rest = rest[targets[rest].argsort(stable=True)]
    pairs = zip(order[:m].tensor_split(n_clients), rest.tensor_split(n_clients), strict=True)
    return [torch.cat(pair) for pair in pairs]
