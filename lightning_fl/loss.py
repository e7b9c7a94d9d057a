"""What clients and server minimise: cross-entropy, unless the model brings a loss of its own.

A model with a method ``sample_losses(outputs, targets) -> (batch,)`` is trained on that loss.
"""

import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from lightning_fl.errors import SettingError


def sample_losses(
    model: nn.Module, outputs: Float[Tensor, "batch k"], targets: Int64[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """Compute the loss of each sample.

    Args:
        model: Decides which loss it is.
        outputs: Its outputs for the samples; for cross-entropy, logits.
        targets: The samples' classes.

    Raises:
        SettingError: If the model's own loss does not give one number per sample.
    """
    own = getattr(model, "sample_losses", None)
    if own is None:
        return F.cross_entropy(outputs, targets, reduction="none")
    losses: Tensor = own(outputs, targets)
    if not isinstance(losses, Tensor) or losses.shape != targets.shape:
        got = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else type(losses).__name__
        raise SettingError(
            f"{type(model).__name__}.sample_losses must give one loss per sample, shape {tuple(targets.shape)}, got "
            f"{got}; set reduction='none', and bring outputs and targets to one shape."
        )
    return losses


def mean_loss(
    model: nn.Module, outputs: Float[Tensor, "batch k"], targets: Int64[Tensor, " batch"]
) -> Float[Tensor, ""]:
    """Compute the mean loss of the samples; see `sample_losses`."""
    if hasattr(model, "sample_losses"):
        return sample_losses(model, outputs, targets).mean()
    return F.cross_entropy(outputs, targets)


def loss_of(model: nn.Module, x: Tensor, y: Int64[Tensor, " batch"]) -> Float[Tensor, ""]:
    """Compute the mean loss of a model on inputs and their classes."""
    return mean_loss(model, model(x), y)
