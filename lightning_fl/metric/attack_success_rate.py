"""Attack success rate: how often a trigger makes the model say what the attacker wants.

Tianyu Gu, Brendan Dolan-Gavitt, Siddharth Garg. BadNets: Identifying Vulnerabilities in the Machine Learning Model
Supply Chain. 2017. arXiv:1708.06733.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torchmetrics import Metric

from lightning_fl.errors import SettingError


def attack_success_rate(
    predictions: Int64[Tensor, " k"], goals: Int64[Tensor, " k"] | int, targets: Int64[Tensor, " k"]
) -> Float[Tensor, ""]:
    """Compute the share of samples with the trigger that are taken for the attacker's goal.

    Samples whose true class is the goal do not count: they are taken for it without any trigger.

    Args:
        predictions: Class that the model gives each sample with the trigger.
        goals: Class that the attacker wants, of each sample or of all.
        targets: True class of each sample.

    Returns:
        The rate, in [0, 1].

    Raises:
        SettingError: If no sample counts.

    >>> truth = torch.tensor([0, 1, 2, 2])
    >>> attack_success_rate(torch.tensor([2, 1, 2, 0]), 2, truth)  # the two of class 2 do not count
    tensor(0.5000)
    """
    metric = AttackSuccessRate().to(targets.device)
    metric.update(predictions, torch.as_tensor(goals, device=targets.device).expand_as(targets), targets)
    if not metric.total:
        raise SettingError("attack_success_rate needs a sample whose true class is not the goal, got none.")
    rate: Tensor = metric.compute()
    return rate


class AttackSuccessRate(Metric):
    """Attack success rate over all predictions since the last reset; see `attack_success_rate`."""

    higher_is_better = False
    full_state_update = False
    hits: Tensor
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("hits", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("total", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, predictions: Tensor, goals: Tensor, targets: Tensor | None = None) -> None:
        """Count some samples with the trigger.

        Args:
            predictions: (k,) classes or (k, c) logits.
            goals: (k,) class that the attacker wants of each.
            targets: (k,) true classes.  None: none of them is its sample's goal.
        """
        classes = predictions.argmax(1) if predictions.ndim == 2 else predictions
        counted = torch.ones_like(goals, dtype=torch.bool) if targets is None else targets != goals
        self.hits += ((classes == goals) & counted).sum()
        self.total += counted.sum()

    def compute(self) -> Tensor:
        """Compute the rate; NaN if no sample counted."""
        return self.hits / self.total
