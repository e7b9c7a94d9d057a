"""What every test may use."""

import os

if "PYTEST_XDIST_WORKER" in os.environ:  # one thread for each of the processes side by side, and for what they start
    os.environ["OMP_NUM_THREADS"] = "1"

import lightning_fl  # noqa: F401  (first: makes torchvision importable beside a CPU-only torch)

# isort: split

import jaxtyping
import pytest
import torch

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)


@pytest.fixture
def unchecked():
    """Turn the run-time check of shapes and types off, to see the errors that users see."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def draw():
    """A seeded generator for random problems."""
    return torch.Generator().manual_seed(0)
