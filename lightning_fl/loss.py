"""What clients and server minimise: cross-entropy, unless the model brings a loss of its own.

A model with a method ``sample_losses(outputs, targets) -> (batch,)`` is trained on that loss.
"""

import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn


def sample_losses(
    model: nn.Module, outputs: Float[Tensor, "batch k"], targets: Int64[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """Compute the loss of each sample.

    Args:
        model: Decides which loss it is.
        outputs: Its outputs for the samples; for cross-entropy, logits.
        targets: The samples' classes.
    """
    own = getattr(model, "sample_losses", None)
    return F.cross_entropy(outputs, targets, reduction="none") if own is None else own(outputs, targets)


def mean_loss(
    model: nn.Module, outputs: Float[Tensor, "batch k"], targets: Int64[Tensor, " batch"]
) -> Float[Tensor, ""]:
    """Compute the mean loss of the samples; see `sample_losses`."""
    if hasattr(model, "sample_losses"):
        return sample_losses(model, outputs, targets).mean()
    return F.cross_entropy(outputs, targets)
