"""Errors in a few lines."""

import pytest
import torch

from lightning_fl.run.explain import explain


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), "there is not enough memory (MemoryError)."),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory:\nyou tried to allocate 80 bytes."),
            "there is not enough memory (DefaultCPUAllocator: can't allocate memory: you tried to allocate 80 bytes.).",
        ),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."),
            "there is not enough memory (CUDA out of memory. Tried to allocate 20.00 GiB.).",
        ),
        (RuntimeError("a bug"), None),
    ],
)
def test_too_little_memory_is_said_in_one_line(error, message):
    assert explain(error) == message
