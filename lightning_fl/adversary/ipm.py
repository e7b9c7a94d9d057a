"""Inner-product manipulation: push the mean update against the descent direction.

Cong Xie, Oluwasanmi Koyejo, Indranil Gupta. Fall of Empires: Breaking Byzantine-tolerant SGD by Inner Product
Manipulation. UAI 2019. arXiv:1903.03936.
"""

from jaxtyping import Float
from torch import Tensor

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.errors import check_finite
from lightning_fl.updates.updates import Updates


def ipm(honest: Float[Tensor, "h d"], n_byzantine: int, factor: float = 10.0) -> Float[Tensor, "b d"]:
    """Send -gamma times the mean of the honest updates: g_b = -gamma (1/h) sum_i g_i.

    Args:
        honest: One honest update per row.
        n_byzantine: How many copies to send.
        factor: gamma.  Averaging then ascends when gamma b > h.

    Returns:
        The forged updates, one vector expanded to n_byzantine rows.

    >>> import torch
    >>> ipm(torch.tensor([[1.0, 0.0], [3.0, 2.0]]), n_byzantine=1, factor=10.0)
    tensor([[-20., -10.]])
    """
    return (-factor * honest.mean(0)).expand(n_byzantine, -1)


class Ipm(Adversary):
    """Send -factor times the honest mean; see `ipm`."""

    def __init__(self, factor: float = 10.0):
        check_finite("ipm's factor", factor)
        self.factor = factor

    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        """Forge one round's updates; see the base class."""
        return honest.by_column(lambda rows: ipm(rows, n_byzantine, self.factor))
