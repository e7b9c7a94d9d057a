"""Inner-product manipulation: push the mean update against the descent direction.

Cong Xie, Oluwasanmi Koyejo, Indranil Gupta. Fall of Empires: Breaking Byzantine-tolerant SGD by Inner Product
Manipulation. UAI 2019. arXiv:1903.03936.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.ranges import FiniteFloat
from lightning_fl.updates.updates import Updates


class Ipm(Adversary):
    """Send -gamma times the mean of the honest updates: g_b = -gamma (1/h) sum_i g_i.

    Args:
        factor: gamma.  Averaging then ascends when gamma b > h.
        window: See `Adversary`.

    >>> import torch
    >>> Ipm(factor=10.0)(torch.tensor([[1.0, 0.0], [3.0, 2.0]]), n_byzantine=1)
    tensor([[-20., -10.]])
    """

    def __init__(self, factor: FiniteFloat = 10.0, **window: Any):
        super().__init__(**window)
        self.factor = factor

    @override
    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        return honest.by_column(lambda rows: -self.factor * rows.mean(0)).expand(n_byzantine, -1)
