"""A model of your own."""

from torch import Tensor, nn


class MyModel(nn.Module):
    """Logistic regression with a layer norm before it.

    Args:
        in_features: Numbers of a sample.
        n_classes: Classes.
    """

    def __init__(self, in_features: int, n_classes: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.LayerNorm(in_features), nn.Linear(in_features, n_classes))

    def forward(self, inputs: Tensor) -> Tensor:
        """Map a batch of samples to their logits."""
        return self.layers(inputs)
