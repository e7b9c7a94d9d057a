"""An attack of your own."""

import torch

from lightning_fl import Adversary, AttackContext, SettingError, Updates


class MyAttack(Adversary):
    """Every Byzantine client sends the honest mean, turned round and lengthened.

    Args:
        factor: Times the honest mean, a finite number.
    """

    def __init__(self, factor: float = 5.0):
        if not abs(factor) < float("inf"):
            raise SettingError(f"my_attack needs a finite factor, got {factor}.")
        self.factor = factor

    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> torch.Tensor:
        """Forge the rows."""
        return (-self.factor * honest.combine(honest.data_weights)).expand(n_byzantine, -1)
