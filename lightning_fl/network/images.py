"""How a CPU convolves and pools images faster: with the channels of a pixel side by side in memory, and few at a time.

The numbers are the same up to rounding.
"""

import torch
from jaxtyping import Shaped
from torch import Tensor, nn
from torch.func import functional_call

from lightning_fl.network.dropout import KeyedDropout
from lightning_fl.network.facts import numbers_per_sample, once
from lightning_fl.samples import Samples

# Inputs and activations of this many numbers at a time: more exceed the processor's caches.
_NUMBERS = 2**22


def convolves_on_cpu(model: nn.Module, device: torch.device) -> bool:
    """Whether a CPU computes a model with convolutions."""
    return device.type == "cpu" and any(isinstance(module, nn.modules.conv._ConvNd) for module in model.modules())


def at_a_time(model: nn.Module, samples: Samples) -> int:
    """Choose how many samples to compute at a time: all, but on a CPU as many images as its caches hold.

    Args:
        model: The model.
        samples: All that there are.
    """
    if not convolves_on_cpu(model, samples.targets.device):
        return len(samples)
    return max(1, _NUMBERS // numbers_per_sample(model, samples))


def outputs(model: nn.Module, x: Shaped[Tensor, "n ..."], samples: Samples) -> Shaped[Tensor, "n ..."]:
    """Compute what a model makes of a batch of the samples, where no gradient is wanted."""
    return torch.cat([model(arranged(model, part)) for part in x.split(at_a_time(model, samples))])


def arranged(model: nn.Module, x: Shaped[Tensor, "n ..."]) -> Shaped[Tensor, "n ..."]:
    """Arrange a batch as the model computes it fastest.

    Args:
        model: The model that gets it.
        x: The batch, contiguous.

    Returns:
        The batch; on a CPU, for a model with convolutions that can be computed so, images with their channels last.

    >>> arranged(nn.Conv2d(3, 1, 1), torch.zeros(2, 3, 4, 4)).stride()
    (48, 1, 12, 3)
    """
    images = x.device.type == "cpu" and x.ndim == 4 and x.is_floating_point()
    return _channels_last(x) if images and _can(model, x[:2]) else x


def _channels_last(x: Tensor) -> Tensor:
    _, c, height, width = x.shape
    if c == 1:  # torch takes either order for the other
        return x.contiguous().as_strided(x.shape, (height * width, 1, width, 1))
    return x.contiguous(memory_format=torch.channels_last)


@once
def _can(model: nn.Module, x: Tensor) -> bool:
    """Whether the model convolves, and makes the same of both orders; a ``view`` of channels that are last raises."""
    if not convolves_on_cpu(model, x.device):
        return False

    def trial(x: Tensor) -> Tensor:
        state = {name: value.detach().clone() for name, value in (*model.named_parameters(), *model.named_buffers())}
        for name, value in model.named_parameters():
            state[name].requires_grad_(value.requires_grad)
        with torch.enable_grad(), KeyedDropout(None):
            found: Tensor = functional_call(model, state, (x,))
            if found.requires_grad:
                found.sum().backward()
        return found.detach()

    try:
        expected, found = trial(x), trial(_channels_last(x))
    except Exception:  # whatever a model cannot do; the usual order says what
        return False
    return torch.allclose(found, expected, rtol=1e-3, atol=1e-5 * expected.abs().max().item(), equal_nan=True)
