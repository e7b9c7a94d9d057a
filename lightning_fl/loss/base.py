"""What clients and server minimise: the loss that was chosen, or the model's own, or else cross-entropy.

A loss maps outputs and targets to one number per sample: one of ours, one of torch's with ``reduction="none"``, or any
function.  A model may bring its own as a method ``sample_losses(outputs, targets) -> (batch,)``.
"""

from collections.abc import Callable
from copy import copy

import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from lightning_fl.errors import SettingError, concerning

Loss = Callable[[Tensor, Tensor], Tensor]


def minimizing(model: nn.Module, loss: Loss) -> nn.Module:
    """Give the model another loss.

    Args:
        model: The model.
        loss: Maps outputs and targets to one loss per sample.

    Returns:
        A model that shares everything with the given one, which is left without the loss.

    Raises:
        SettingError: If the model brings a loss of its own, or the loss has parameters.
    """
    if not callable(loss) or isinstance(loss, type):
        raise SettingError(f"loss must be a function or a module such as fl.loss.Focal(), got {loss!r}.")
    if hasattr(type(model), "sample_losses"):
        raise SettingError(
            f"a run has one loss, got {_name(loss)} and the one that {type(model).__name__} brings (sample_losses); "
            f"leave loss out, or choose another model."
        )
    if isinstance(loss, nn.Module) and list(loss.parameters()):
        raise SettingError(
            f"a loss has no parameters of its own, got {_name(loss)} with some; give them to the model, with a method "
            f"sample_losses, so that clients train and upload them."
        )
    twin = copy(model)
    vars(twin)["sample_losses"] = loss  # not a layer: nn.Sequential would run it
    return twin


def unburdened(model: nn.Module) -> nn.Module:
    """Take away from a model, in place, the loss that `minimizing` gave it: another run has its own."""
    vars(model).pop("sample_losses", None)
    return model


def sample_losses(
    model: nn.Module, outputs: Float[Tensor, "batch k"], targets: Int64[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """Compute the loss of each sample.

    Args:
        model: Decides which loss it is.
        outputs: Its outputs for the samples; for cross-entropy, logits.
        targets: The samples' classes.

    Raises:
        SettingError: If the loss does not give one number per sample.
    """
    own = getattr(model, "sample_losses", None)
    if own is None:
        return F.cross_entropy(outputs, targets, reduction="none")
    with concerning("model" if hasattr(type(model), "sample_losses") else "loss"):
        losses: Tensor = own(outputs, targets)
        if isinstance(losses, Tensor) and losses.shape == targets.shape:
            return losses
        who = f"{type(model).__name__}.sample_losses" if hasattr(type(model), "sample_losses") else _name(own)
        got = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else type(losses).__name__
        raise SettingError(
            f"{who} must give one loss per sample, shape {tuple(targets.shape)}, got {got}; set reduction='none', and "
            f"bring outputs and targets to one shape."
        )


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


def _name(loss: Loss) -> str:
    return getattr(loss, "__qualname__", type(loss).__name__)
