"""Clients whose sizes follow a power law, as users of a service do."""

import torch
from jaxtyping import Float64
from torch import Tensor

from lightning_fl.errors import SettingError
from lightning_fl.partition.base import Partition, cut
from lightning_fl.ranges import PositiveFloat, PositiveInt


class PowerLaw(Partition):
    """Shuffle all samples and cut them by sizes whose tail is a power: P(size > s) falls as s^(-exponent).

    Client i gets ``min_samples``, and of the rest a share in proportion to u_i^(-1 / exponent), u_i uniform in (0, 1]:
    Pareto's distribution.  Classes are mixed as in ``iid``.

    Args:
        exponent: Above 0.  At 1.16 a fifth of the clients would hold four fifths of the samples; large values come near
            ``iid``.
        min_samples: Samples that every client holds, at least 1.

    Raises:
        SettingError: If a setting is out of range; when samples are dealt, if they are too few.
    """

    def __init__(self, exponent: PositiveFloat = 1.5, min_samples: PositiveInt = 1):
        self.exponent = exponent
        self.min_samples = min_samples

    def assign(self, targets: Tensor, n_clients: int, n_classes: int, generator: torch.Generator) -> list[Tensor]:
        """Assign every sample to one client; see the base class."""
        least = self.min_samples * n_clients
        if len(targets) < least:
            raise SettingError(
                f"power_law needs {self.min_samples} samples for each of {n_clients} clients, got {len(targets)} in "
                f"all; lower federation.n_clients or min_samples."
            )
        shares = pareto(1 - torch.rand(n_clients, dtype=torch.float64, generator=generator), self.exponent)
        order = torch.randperm(len(targets), generator=generator)
        first, rest = order[:least].tensor_split(n_clients), cut(order[least:], shares)
        return [torch.cat(pair) for pair in zip(first, rest, strict=True)]


def pareto(u: Float64[Tensor, " n"], exponent: float) -> Float64[Tensor, " n"]:
    """Map uniform numbers to Pareto's, divided by the largest of them, which may exceed what a number holds.

    >>> pareto(torch.tensor([0.25, 1.0], dtype=torch.float64), 2.0)  # 2 and 1
    tensor([1.0000, 0.5000], dtype=torch.float64)
    """
    logs = -u.log()
    return ((logs - logs.max()) / exponent).exp()
