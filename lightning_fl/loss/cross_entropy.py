"""Cross-entropy with class weights and label smoothing."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from lightning_fl.errors import SettingError
from lightning_fl.ranges import Checked, NonNegativeFloat, Share


class CrossEntropy(Checked, nn.Module):
    """Cross-entropy of logits, L = -sum_k q_k w_k log p_k with p = softmax(outputs).

    q is 1 - e + e/c at the sample's class and e/c at the others, e the label smoothing of Szegedy et al. (Rethinking
    the Inception Architecture for Computer Vision, CVPR 2016, arXiv:1512.00567).

    >>> loss = CrossEntropy(class_weights=[1.0, 3.0])
    >>> loss(torch.zeros(2, 2), torch.tensor([0, 1]))  # log 2, and three times that
    tensor([0.6931, 2.0794])

    Args:
        class_weights: w, one number of at least 0 per class.  None: 1 each.
        label_smoothing: e, 0 to 1.

    Raises:
        SettingError: If a setting is out of range.

    Note:
        A client minimises the mean over its samples, whatever their weights; torch's mean divides by the sum of
        weights, which would hide from the server that a client holds rare classes only.
    """

    def __init__(self, class_weights: Sequence[NonNegativeFloat] | None = None, label_smoothing: Share = 0.0):
        super().__init__()
        self.class_weights = checked_weights(class_weights)
        self.label_smoothing = label_smoothing

    def forward(self, outputs: Float[Tensor, "batch c"], targets: Int64[Tensor, " batch"]) -> Float[Tensor, " batch"]:
        """Compute the loss of each sample.

        Args:
            outputs: Logits.
            targets: The samples' classes.

        Raises:
            SettingError: If there is not one weight per class.
        """
        weights = weights_like(self.class_weights, outputs)
        return F.cross_entropy(outputs, targets, weights, reduction="none", label_smoothing=self.label_smoothing)


def checked_weights(weights: Sequence[float] | None) -> list[float] | None:
    """Check the weights of classes, which are finite and at least 0.

    Raises:
        SettingError: If all are 0.
    """
    if weights is None:
        return None
    found = [float(weight) for weight in weights]
    if not any(found):
        raise SettingError(f"class_weights needs one above 0, got {found}.")
    return found


def weights_like(weights: list[float] | None, outputs: Tensor) -> Tensor | None:
    """Give the weights of classes as a tensor of the outputs' type.

    Raises:
        SettingError: If there is not one for each class.
    """
    if weights is None:
        return None
    if len(weights) != outputs.shape[-1]:
        raise SettingError(
            f"class_weights needs one number per class, {outputs.shape[-1]} here, got {len(weights)}; give as many."
        )
    return torch.tensor(weights, dtype=outputs.dtype, device=outputs.device)
