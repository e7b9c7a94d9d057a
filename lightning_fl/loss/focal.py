"""Focal loss.

Lin, Goyal, Girshick, He, Dollar.  Focal Loss for Dense Object Detection.  ICCV 2017, arXiv:1708.02002.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from lightning_fl.loss.cross_entropy import checked_weights, weights_like
from lightning_fl.ranges import Checked, NonNegativeFloat


class Focal(Checked, nn.Module):
    """Focal loss of logits, L = -w_y (1 - p_y)^gamma log p_y with p = softmax(outputs) (equation 5).

    Samples that are right already count little; gamma = 0 is cross-entropy.

    >>> Focal()(torch.tensor([[0.0, 0.0]]), torch.tensor([0]))  # p = 1/2: log(2)/4
    tensor([0.1733])

    Args:
        gamma: How little they count, at least 0.
        class_weights: w (the paper's alpha), one number of at least 0 per class.  None: 1 each.

    Raises:
        SettingError: If a setting is out of range.
    """

    def __init__(self, gamma: NonNegativeFloat = 2.0, class_weights: Sequence[NonNegativeFloat] | None = None):
        super().__init__()
        self.gamma = gamma
        self.class_weights = checked_weights(class_weights)

    def forward(self, outputs: Float[Tensor, "batch c"], targets: Int64[Tensor, " batch"]) -> Float[Tensor, " batch"]:
        """Compute the loss of each sample.

        Args:
            outputs: Logits.
            targets: The samples' classes.

        Raises:
            SettingError: If there is not one weight per class.
        """
        log_p = outputs.log_softmax(-1).gather(-1, targets[:, None]).squeeze(-1)
        # Where p rounds to 1, the power's derivative would be infinite for gamma < 1.
        wrong = (-log_p.expm1()).clamp_min(torch.finfo(log_p.dtype).tiny)
        losses = -(wrong**self.gamma) * log_p
        weights = weights_like(self.class_weights, outputs)
        return losses if weights is None else losses * weights[targets]
