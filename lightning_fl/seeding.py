"""Random generators from (seed, purpose, round, ...): no draw depends on earlier draws.

So a run resumed at round t draws what the uninterrupted run draws, and a new attack does not shift the partition.
"""

import hashlib
from operator import index
from typing import SupportsIndex

import torch

from lightning_fl.errors import SettingError


def derive_seed(seed: SupportsIndex, *path: str | SupportsIndex) -> int:
    """Derive a 63-bit seed from a run's seed and a path that names the purpose.

    Args:
        seed: The run's seed, any integer.
        path: What the numbers are for, from coarse to fine, such as ``("attack", 17)`` for round 17.

    Returns:
        An integer in [0, 2**63), the same on every machine and for every kind of integer, NumPy's included.  torch on a
        CPU takes its last 32 bits: of 100,000 streams two are equal with probability 0.7; keep no secret by them.

    Raises:
        SettingError: If the seed is not an integer.

    >>> derive_seed(0, "attack", 17) == derive_seed(0, "attack", 17) != derive_seed(0, "attack", 18)
    True
    """
    try:
        numbers = tuple(part if isinstance(part, str) else int(index(part)) for part in path)
        named = repr((int(index(seed)), *numbers))
    except TypeError:
        raise SettingError(f"a seed must be an integer, got {seed!r}.") from None
    digest = hashlib.blake2b(named.encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


def generator(seed: SupportsIndex, *path: str | SupportsIndex) -> torch.Generator:
    """Make a fresh generator for one purpose; see `derive_seed`."""
    return torch.Generator().manual_seed(derive_seed(seed, *path))
