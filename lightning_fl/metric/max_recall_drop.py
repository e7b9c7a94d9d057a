"""Max-recall-drop: how much the worst-off class loses by a robust rule.

Wenxuan Bao, Jun Wu, Jingrui He. BOBA. AISTATS 2024. arXiv:2208.12932, sec. 6.1.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torchmetrics.classification import MulticlassRecall

from lightning_fl.errors import SettingError


def max_recall_drop(recall: Float[Tensor, " c"], reference: Float[Tensor, " c"]) -> Float[Tensor, ""]:
    """Compute MRD = max_z (reference_z - recall_z), at least 0, in the unit of its arguments.

    Args:
        recall: Recall of each class; NaN where it was not measured, for want of test samples: such a class is left out.
        reference: Recall of each class by plain averaging without attack; likewise.

    Returns:
        The largest drop; 0 if no class lost, NaN if none was measured.

    Raises:
        SettingError: If the two differ in length.

    Note:
        The paper does not say how a gain in every class counts; here it counts as a drop of 0.

    >>> max_recall_drop(torch.tensor([0.9, 0.5]), torch.tensor([0.8, 0.75]))
    tensor(0.2500)
    """
    if recall.shape != reference.shape:
        raise SettingError(
            f"max_recall_drop compares classes, got {len(recall)} recalls and {len(reference)} references."
        )
    drops = reference.to(recall) - recall
    return drops.nan_to_num(0.0).max().clamp(min=0) if drops.isfinite().any() else drops.max()


class MaxRecallDrop(MulticlassRecall):
    """Max-recall-drop over all predictions since the last reset; see `max_recall_drop`.

    Args:
        reference: (c,) recalls of plain averaging without attack; NaN where not measured.
        settings: Further settings of ``torchmetrics.classification.MulticlassRecall``.
    """

    higher_is_better = False
    reference: Tensor

    def __init__(self, reference: Tensor, **settings: Any):
        super().__init__(num_classes=len(reference), average="none", **settings)
        self.register_buffer("reference", reference, persistent=False)

    def compute(self) -> Float[Tensor, ""]:
        """Compute the drop over the classes with samples."""
        tested = self.tp + self.fn > 0  # type: ignore[operator]
        return max_recall_drop(super().compute().where(tested, torch.nan), self.reference)
