"""Focal loss, against a loop typed from equation 5."""

from math import exp, inf, log

import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.loss.focal import Focal

OUTPUTS = torch.tensor([[3.0, 1.0, -1.0], [0.0, 0.5, 2.0], [9.0, -9.0, 0.0]], dtype=torch.float64)
TARGETS = torch.tensor([1, 2, 0])


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0, 5.0])
@pytest.mark.parametrize("weights", [None, [1.0, 5.0, 0.25]])
def test_equals_the_loop(gamma, weights):
    expected = []
    for z, y in zip(OUTPUTS.tolist(), TARGETS.tolist(), strict=True):
        p = exp(z[y]) / sum(map(exp, z))
        expected.append(-(weights or [1.0] * 3)[y] * (1 - p) ** gamma * log(p))
    found = Focal(gamma, weights)(OUTPUTS, TARGETS)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_a_sure_model_has_a_gradient(gamma):
    """The derivative of (1 - p)^gamma is infinite at p = 1 for gamma < 1; the loss's own is 0."""
    outputs = torch.tensor([[200.0, 0.0]], requires_grad=True)
    Focal(gamma)(outputs, torch.tensor([0])).sum().backward()
    assert outputs.grad.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("gamma", [-1.0, inf])
def test_gamma_out_of_range(gamma):
    with pytest.raises(SettingError, match=r"focal needs .*gamma >= 0"):
        Focal(gamma)
