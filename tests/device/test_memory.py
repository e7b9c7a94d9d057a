import pytest
import torch

from lightning_fl.device.memory import peak, reset_peak

CPU = torch.device("cpu")


def test_the_peak_has_what_was_given_back_meanwhile():
    before = reset_peak(CPU)
    if before is None:
        pytest.skip("this system does not tell")
    tensor = torch.ones(2**24)
    size = tensor.nbytes
    del tensor
    assert peak(CPU) - before > 0.9 * size
