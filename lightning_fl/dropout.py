"""Dropout whose draws depend on seed, round and client alone, however many clients are computed at a time.

Torch's own dropout draws from one global stream, so who is dropped would depend on what was computed before.  Here
every number is a hash of (client's key, place of the sample, layer, place in the sample), by the finaliser of
SplitMix64 (Guy L. Steele Jr., Doug Lea, Christine H. Flood. Fast Splittable Pseudorandom Number Generators. OOPSLA
2014), which is plain arithmetic: the same in a loop and in ``vmap``, on a CPU and on a GPU.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Int64
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from lightning_fl.errors import SettingError
from lightning_fl.round import Round

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # as int64: its sums and products wrap around in torch
_FIRST, _SECOND = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64


def uses_dropout(model: nn.Module) -> bool:
    """Tell whether any layer of the model drops anything in training."""
    return any(isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0 for module in model.modules())


def client_keys(clients: Sequence[int], this_round: Round, step: int) -> Int64[Tensor, " h"]:
    """Derive each client's key for one step of a round."""
    return torch.tensor([this_round.derive_seed("dropout", client, step) for client in clients], dtype=torch.int64)


def sample_keys(key: Int64[Tensor, "*h"], n: int) -> Int64[Tensor, "*h n"]:
    """Derive n further keys from each: of a client's samples, in the order in which it computes on them.

    They are SplitMix64's first n outputs from that seed.
    """
    return _mix(key[..., None] + _GOLDEN * torch.arange(1, n + 1, device=key.device))


class KeyedDropout(TorchFunctionMode):
    """Make dropout layers drop by keys, one per sample of the batch; without keys they drop nothing.

    Layers are distinguished by the order in which they are called.

    Args:
        keys: `sample_keys` of the batch.

    Raises:
        SettingError: If a layer's input does not have the samples in its first dimension.
    """

    def __init__(self, keys: Tensor | None):
        super().__init__()
        self.keys = keys
        self.layer = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Replace dropout; everything else is called as it is."""
        spatial = _SPATIAL.get(func)
        if spatial is None:
            return func(*args, **(kwargs or {}))
        return self._drop(spatial, *args, **(kwargs or {}))

    def _drop(self, spatial: int, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or self.keys is None or p == 0:
            return x
        self.layer += 1
        n = self.keys.shape[-1]
        if not x.dim() or x.shape[0] % n:
            raise SettingError(
                f"dropout needs the {n} samples in its input's first dimension, got shape {tuple(x.shape)}; change the "
                f"model or set p=0."
            )
        whole = x.shape[: x.dim() - spatial]  # a channel is dropped as a whole
        each = sample_keys(self.keys, self.layer)[..., -1]
        drawn = sample_keys(each, whole.numel() // n) >> 40 & 0xFFFFFF
        kept = (drawn >= round(p * 2**24)).reshape(*whole, *[1] * spatial)
        return x * kept.to(x.dtype).div(1 - p if p < 1 else 1)


_SPATIAL: dict[Any, int] = {F.dropout: 0, F.dropout1d: 1, F.dropout2d: 2, F.dropout3d: 3}


def _mix(z: Tensor) -> Tensor:
    """The finaliser of SplitMix64, 64 bits to 64 bits; int64's right shift keeps the sign, hence the masks."""
    z = (z ^ (z >> 30 & (1 << 34) - 1)) * _FIRST
    z = (z ^ (z >> 27 & (1 << 37) - 1)) * _SECOND
    return z ^ (z >> 31 & (1 << 33) - 1)
