"""Decompositions of small matrices."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from lightning_fl.updates.threads import one_thread

# Rows up to which a matrix is decomposed faster by one thread than by two.
_SMALL = 512


def threads_for(n: int) -> AbstractContextManager[None]:
    """Decompose matrices of n rows in as many threads as pay: in small ones several mostly wait for each other."""
    return one_thread() if n <= _SMALL else nullcontext()


def eigh(matrix: Any) -> Any:
    """Decompose a symmetric matrix, as torch.linalg.eigh, in as many threads as pay."""
    with threads_for(len(matrix)):
        return torch.linalg.eigh(matrix)
