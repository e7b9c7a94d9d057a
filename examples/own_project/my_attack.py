"""An attack of your own."""

import torch

from lightning_fl import Adversary, AttackContext, Updates
from lightning_fl.ranges import FiniteFloat


class MyAttack(Adversary):
    """Every Byzantine client sends the honest mean, turned round and lengthened.

    Args:
        factor: Times the honest mean by data weights.
    """

    varies_with = ("weights",)

    def __init__(self, factor: FiniteFloat = 5.0):
        self.factor = factor

    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> torch.Tensor:
        """Forge the rows."""
        return (-self.factor * honest.combine(honest.data_weights)).expand(n_byzantine, -1)
