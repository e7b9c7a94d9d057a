"""Cross-entropy with class weights and label smoothing, against a loop over samples and classes."""

from math import exp, log

import pytest
import torch
import torch.nn.functional as F

from lightning_fl import SettingError
from lightning_fl.loss.cross_entropy import CrossEntropy

OUTPUTS = torch.tensor([[3.0, 1.0, -1.0], [0.0, 0.5, 2.0]], dtype=torch.float64)
TARGETS = torch.tensor([1, 2])


def slow(outputs, targets, weights, smoothing):
    losses = []
    for z, y in zip(outputs.tolist(), targets.tolist(), strict=True):
        c = len(z)
        q = [smoothing / c + (1 - smoothing) * (k == y) for k in range(c)]
        losses.append(-sum(q[k] * weights[k] * (z[k] - log(sum(map(exp, z)))) for k in range(c)))
    return torch.tensor(losses, dtype=torch.float64)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("weights", [None, [1.0, 5.0, 0.0]])
def test_equals_the_loop(weights, smoothing):
    found = CrossEntropy(weights, smoothing)(OUTPUTS, TARGETS)
    torch.testing.assert_close(found, slow(OUTPUTS, TARGETS, weights or [1.0] * 3, smoothing))


def test_the_default_is_what_is_minimised_without_a_loss():
    assert torch.equal(CrossEntropy()(OUTPUTS, TARGETS), F.cross_entropy(OUTPUTS, TARGETS, reduction="none"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"label_smoothing": 1.1}, r"cross_entropy needs 0 <= label_smoothing <= 1, got 1.1"),
        ({"class_weights": [1.0, -1.0]}, "cross_entropy needs class_weights >= 0, got -1.0"),
        ({"class_weights": [0.0, 0.0]}, "class_weights needs one above 0"),
    ],
)
def test_settings_out_of_range(settings, message):
    with pytest.raises(SettingError, match=message):
        CrossEntropy(**settings)


def test_one_weight_per_class():
    with pytest.raises(SettingError, match="class_weights needs one number per class, 3 here, got 2"):
        CrossEntropy([1.0, 2.0])(OUTPUTS, TARGETS)
