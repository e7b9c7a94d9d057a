"""A loss of your own."""

from torch import Tensor, nn


class MyLoss(nn.Module):
    """The probability that the model gives to other classes: wrong labels pull less than by cross-entropy."""

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Give one loss per sample."""
        return 1 - outputs.softmax(-1).gather(-1, targets[:, None]).squeeze(-1)
