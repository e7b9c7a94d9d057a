"""Dropout whose draws depend on seed, round and client alone, however many clients are computed at a time.

Torch's own dropout draws from one global stream, so who is dropped would depend on what was computed before.  Here
every number is a hash of (client's key, place of the sample, layer, place in the sample), by the finaliser of
SplitMix64 (Guy L. Steele Jr., Doug Lea, Christine H. Flood. Fast Splittable Pseudorandom Number Generators. OOPSLA
2014), which is plain arithmetic: the same in a loop and in ``vmap``, on a CPU and on a GPU.
"""

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Int64
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lightning_fl.errors import SettingError
from lightning_fl.round import Round

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # as int64: its sums and products wrap around in torch
_FIRST, _SECOND = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64


def client_keys(clients: Sequence[int], this_round: Round, step: int) -> Int64[Tensor, " h"]:
    """Derive each client's key for one step of a round."""
    return torch.tensor([this_round.derive_seed("dropout", client, step) for client in clients], dtype=torch.int64)


def sample_keys(key: Int64[Tensor, "*h"], n: int) -> Int64[Tensor, "*h n"]:
    """Derive n further keys from each: of a client's samples, in the order in which it computes on them.

    They are SplitMix64's first n outputs from that seed.
    """
    return _mix(key[..., None] + _GOLDEN * torch.arange(1, n + 1, device=key.device))


def keys_at(seeds: Int64[Tensor, " n"], places: Int64[Tensor, " n"]) -> Int64[Tensor, " n"]:
    """Give SplitMix64's output number ``place``, from 0, of each seed."""
    return _mix(seeds + _GOLDEN * (places + 1))


def keys_in_order(keys: Int64[Tensor, " h"], sizes: Sequence[int]) -> Int64[Tensor, " n"]:
    """Derive the keys of all samples of clients of these sizes, one client after the other."""
    every = sample_keys(keys, max(sizes))
    return every[torch.arange(max(sizes), device=keys.device) < torch.tensor(sizes, device=keys.device)[:, None]]


class KeyedDropout(TorchFunctionMode):
    """Make torch drop by keys, one per sample of the batch, in its dropout, attention and recurrent layers.

    Layers are distinguished by the order in which they are called.

    Args:
        keys: `sample_keys` of the batch.  None: nothing is dropped.

    Attributes:
        layer: Number of times that something was, or would have been, dropped.

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
        """Replace what drops; everything else is called as it is."""
        kwargs = kwargs or {}
        if func in _CHANNELS:
            return self._drop_channels(*_CHANNELS[func], *args, **kwargs)
        if func is F.dropout:
            return self._drop_numbers(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            return self._attend(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            with self:
                return _attention(*args, **kwargs)
        if func in _RECURRENT:
            return self._recur(func, *args)
        return func(*args, **kwargs)

    def _drop_numbers(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        return self._drop(x, p, x.dim(), inplace) if training else x

    def _drop_channels(
        self, dims: int, others: int, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        return self._drop(x, p, 2 if x.dim() == dims else others, inplace) if training else x

    def _drop(self, x: Tensor, p: float, dims: int, inplace: bool = False) -> Tensor:
        """Drop what has the same place in the first so many dimensions as a whole."""
        if p == 0:
            return x
        self.layer += 1
        if self.keys is None:
            return x
        n = self.keys.shape[-1]
        if not x.dim() or x.shape[0] % n:
            raise SettingError(
                f"dropout needs the {n} samples in its input's first dimension, got shape {tuple(x.shape)}; change the "
                f"model or set p=0."
            )
        whole = x.shape[:dims]
        each = sample_keys(self.keys, self.layer)[..., -1]
        drawn = sample_keys(each, whole.numel() // n) >> 40 & 0xFFFFFF
        kept = (drawn >= round(p * 2**24)).reshape(*whole, *[1] * (x.dim() - len(whole)))
        kept = kept.to(x.dtype).div(1 - p if p < 1 else 1)
        return x.mul_(kept) if inplace else x * kept

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **settings: Any,
    ) -> Tensor:
        """Torch's attention; where weights are dropped by keys, as its documentation writes it out."""
        if dropout_p == 0 or self.keys is None:
            self.layer += dropout_p > 0
            return F.scaled_dot_product_attention(query, key, value, attn_mask, 0.0, is_causal, **settings)
        if settings.get("enable_gqa"):
            key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
        scale = settings.get("scale")
        scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -torch.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask
        nowhere = scores.isneginf().all(-1, keepdim=True)  # all is masked: torch gives zeros
        weights = scores.masked_fill(nowhere, 0.0).softmax(-1).masked_fill(nowhere, 0.0)
        return self._drop(weights, dropout_p, scores.dim()) @ value

    def _recur(self, func: Callable[..., Any], x: Tensor, *args: Any) -> Any:
        """Run a recurrent network, layer by layer if something is dropped between them."""
        packed = isinstance(args[2], Sequence)
        hx, weights, biased, layers, p, training, bidirectional, *first = args[packed:]
        if not training or p == 0 or layers == 1:
            return func(x, *args)
        if packed and self.keys is not None:
            raise SettingError(
                "dropout between the layers of a recurrent network needs a padded batch, got a packed sequence; set "
                "dropout=0 there."
            )
        if self.keys is None:
            self.layer += 1
            return func(x, *args[: packed + 4], 0.0, *args[packed + 5 :])
        k, directions, states = len(weights) // layers, 2 if bidirectional else 1, []
        for layer in range(layers):
            if layer:
                x = self._drop(x, p, 3) if first[0] else self._drop(x.transpose(0, 1), p, 3).transpose(0, 1)
            own = slice(layer * directions, (layer + 1) * directions)
            start = hx[own] if isinstance(hx, Tensor) else tuple(state[own] for state in hx)
            part = weights[layer * k : (layer + 1) * k]
            x, *state = func(x, start, part, biased, 1, 0.0, training, bidirectional, *first)
            states.append(state)
        return x, *(torch.cat(parts) for parts in zip(*states, strict=True))


# Dropout of channels: dimensions of a batch, and what torch takes the first dimensions for where there are others.
_CHANNELS: dict[Any, tuple[int, int]] = {F.dropout1d: (3, 1), F.dropout2d: (4, 2), F.dropout3d: (5, 1)}
_RECURRENT = (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)
# The same function, but modes see what it calls; torch's own would show them itself alone.
_attention = FunctionType(
    F.multi_head_attention_forward.__code__,
    {**F.multi_head_attention_forward.__globals__, "has_torch_function": lambda _: False},
    argdefs=F.multi_head_attention_forward.__defaults__,
)


def _mix(z: Tensor) -> Tensor:
    """The finaliser of SplitMix64, 64 bits to 64 bits; int64's right shift keeps the sign, hence the masks."""
    z = (z ^ (z >> 30 & (1 << 34) - 1)) * _FIRST
    z = (z ^ (z >> 27 & (1 << 37) - 1)) * _SECOND
    return z ^ (z >> 31 & (1 << 33) - 1)
