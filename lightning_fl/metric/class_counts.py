"""What an evaluation counts, from which accuracy, recalls and the confusion matrix follow."""

from math import nan
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torchmetrics import Metric

_MOST = 1000  # classes of which each pair is counted: 8 MB


class Counted(NamedTuple):
    """Samples by their true class.

    Args:
        total: (c,) how many there are.
        right: (c,) how many are predicted right.
        confusion: (c, c) how many, by true class (rows) and predicted class; None of more than 1,000 classes.
        broken: () how many have an output that is not finite.
    """

    total: Int64[Tensor, " c"]
    right: Int64[Tensor, " c"]
    confusion: Int64[Tensor, "c c"] | None
    broken: Int64[Tensor, ""]

    @property
    def accuracy(self) -> float:
        """The share that is predicted right; NaN without samples."""
        total = self.total.sum().item()
        return self.right.sum().item() / total if total else nan

    @property
    def recall(self) -> Float[Tensor, " c"]:
        """The share of each class that is predicted right; NaN without samples."""
        return self.right / self.total


class ClassCounts(Metric):
    """Count samples by true and predicted class; of many classes, such as words, in memory and time of O(c).

    Args:
        n_classes: The number c of classes.
        settings: See ``torchmetrics.Metric``.

    >>> counts = ClassCounts(2)
    >>> counts.update(torch.tensor([[0.0, 1.0], [0.0, 1.0], [2.0, 1.0]]), torch.tensor([0, 1, 0]))
    >>> counts.compute().confusion
    tensor([[1, 1],
            [0, 1]])
    """

    higher_is_better = None
    full_state_update = False
    total: Tensor
    right: Tensor
    confusion: Tensor
    broken: Tensor

    def __init__(self, n_classes: int, **settings: Any):
        super().__init__(**settings)
        pairs = n_classes if n_classes <= _MOST else 0
        for name, shape in [
            ("total", (n_classes,)),
            ("right", (n_classes,)),
            ("confusion", (pairs, pairs)),
            ("broken", ()),
        ]:
            self.add_state(name, torch.zeros(shape, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, outputs: Float[Tensor, "n c"], targets: Int64[Tensor, " n"]) -> None:
        """Count one batch; the class predicted is the one of the largest output, the first of several."""
        c, predicted = len(self.total), outputs.argmax(1)
        self.broken += (~outputs.isfinite().all(1)).sum()
        self.total += targets.bincount(minlength=c)
        self.right += targets[predicted == targets].bincount(minlength=c)
        if len(self.confusion):
            self.confusion += (c * targets + predicted).bincount(minlength=c * c).view(c, c)

    def compute(self) -> Counted:
        """Give the counts."""
        return Counted(self.total, self.right, self.confusion if len(self.confusion) else None, self.broken)
