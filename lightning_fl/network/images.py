"""How a CPU convolves and pools images faster: with the channels of a pixel side by side in memory, and few at a time.

The numbers are the same up to rounding.

The memory of a round serves the next one (`keep_freed`): by default glibc returns what is freed to the system, and asks
anew for every large tensor.  To touch its fresh pages takes about as long as to compute a small convolution: rounds of
LeNet lose a quarter to a third of their time.
"""

import ctypes
import os
import platform
from collections.abc import Mapping

import torch
from jaxtyping import Shaped
from torch import Tensor, nn
from torch.func import functional_call

from lightning_fl.network.dropout import KeyedDropout
from lightning_fl.network.facts import numbers_per_sample, once
from lightning_fl.network.statistics import apart, mixes
from lightning_fl.samples import Samples

# Inputs and activations of this many numbers at a time: more exceed the processor's caches.  But so many samples at
# least, since a large network takes up to half as long again for a few as for these.
_NUMBERS, _LEAST = 2**22, 32
# Where somebody has said what glibc keeps.
_CHOICES = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES"}
# Numbers of the settings in malloc.h: freed bytes to keep, and from how many bytes on a tensor has pages of its own.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT, _LARGE = 2**31 - 1, 2**25  # the most that it takes


def convolves_on_cpu(model: nn.Module, device: torch.device) -> bool:
    """Whether a CPU computes a model with convolutions."""
    return device.type == "cpu" and any(isinstance(module, nn.modules.conv._ConvNd) for module in model.modules())


def at_a_time(model: nn.Module, samples: Samples) -> int:
    """Choose how many samples to compute at a time: all, but on a CPU as many images as its caches hold, or 32.

    Args:
        model: The model.
        samples: All that there are.
    """
    if not convolves_on_cpu(model, samples.targets.device):
        return len(samples)
    return max(_LEAST, _NUMBERS // numbers_per_sample(model, samples))


def outputs(model: nn.Module, x: Shaped[Tensor, "n ..."], samples: Samples) -> Shaped[Tensor, "n ..."]:
    """Compute what a model makes of a batch of the samples, where no gradient is wanted."""
    if not mixes(model):
        return torch.cat([model(arranged(model, part)) for part in x.split(at_a_time(model, samples))])
    parts = apart(x)
    found = [model(arranged(model, x[part].contiguous())) for part in parts]
    every = found[0].new_empty(len(x), *found[0].shape[1:])
    for part, made in zip(parts, found, strict=True):
        every[part] = made
    return every


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


def keep_freed(environment: Mapping[str, str] = os.environ) -> bool:
    """Let this process keep up to 2 GiB that it frees, of tensors up to 32 MiB each; glibc only.

    Returns:
        Whether it does now; not where the environment says something else, or the C library is another.
    """
    if platform.libc_ver()[0] != "glibc" or _CHOICES & environment.keys():
        return False
    library = ctypes.CDLL(None)
    return bool(library.mallopt(_MMAP_THRESHOLD, _LARGE) and library.mallopt(_TRIM_THRESHOLD, _KEPT))
