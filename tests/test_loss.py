"""Cross-entropy, unless the model brings its own loss."""

import torch
from torch import nn

from lightning_fl.loss import mean_loss, sample_losses


class Distance(nn.Identity):
    """A model whose loss is the distance to the class's number."""

    def sample_losses(self, outputs, targets):
        return (outputs[:, 0] - targets).abs()


OUTPUTS, TARGETS = torch.tensor([[3.0, 1.0], [0.0, 0.0]]), torch.tensor([1, 1])


def test_cross_entropy_by_hand():
    # -log(e / (e^3 + e)) = log(e^2 + 1), and log 2.
    expected = torch.tensor([torch.e**2 + 1, 2.0]).log()
    torch.testing.assert_close(sample_losses(nn.Identity(), OUTPUTS, TARGETS), expected)
    torch.testing.assert_close(mean_loss(nn.Identity(), OUTPUTS, TARGETS), expected.mean())


def test_a_models_own_loss():
    assert sample_losses(Distance(), OUTPUTS, TARGETS).tolist() == [2.0, 1.0]
    assert mean_loss(Distance(), OUTPUTS, TARGETS) == 1.5
