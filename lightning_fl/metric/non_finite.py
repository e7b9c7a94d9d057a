"""How many predictions are none: outputs with NaN or inf, which an argmax would hide."""

from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torchmetrics import Metric


class NonFinite(Metric):
    """Count the samples since the last reset for which a model gives NaN or inf.

    Args:
        settings: See ``torchmetrics.Metric``.

    >>> metric = NonFinite()
    >>> metric.update(torch.tensor([[0.0, 1.0], [torch.nan, 1.0]]), torch.tensor([0, 1]))
    >>> metric.compute()
    tensor(1)
    """

    higher_is_better = False
    full_state_update = False
    count: Tensor

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, outputs: Float[Tensor, "n c"], targets: Int64[Tensor, " n"]) -> None:
        """Count one batch; the targets do not matter."""
        self.count += (~outputs.isfinite().all(1)).sum()

    def compute(self) -> Int64[Tensor, ""]:
        """Tell the count."""
        return self.count
