"""Random generators from (seed, purpose, round, ...): no draw depends on earlier draws.

So a run resumed at round t draws what the uninterrupted run draws, and a new attack does not shift the partition.
"""

import hashlib

import torch


def derive_seed(seed: int, *path: str | int) -> int:
    """Derive a 63-bit seed from a run's seed and a path that names the purpose.

    Args:
        seed: The run's seed, any integer.
        path: What the numbers are for, from coarse to fine, such as ``("attack", 17)`` for round 17.

    Returns:
        An integer in [0, 2**63), the same on every machine.

    >>> derive_seed(0, "attack", 17) == derive_seed(0, "attack", 17)
    True
    >>> derive_seed(0, "attack", 17) == derive_seed(0, "attack", 18)
    False
    """
    digest = hashlib.blake2b(repr((seed, *path)).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


def generator(seed: int, *path: str | int) -> torch.Generator:
    """Make a fresh generator for one purpose; see `derive_seed`."""
    return torch.Generator().manual_seed(derive_seed(seed, *path))
