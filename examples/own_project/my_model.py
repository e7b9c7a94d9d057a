"""A model of your own."""

from torch import Tensor, nn


class MyModel(nn.Module):
    """One hidden layer with a layer norm.

    Args:
        in_features: Numbers of a sample.
        hidden: Width of the hidden layer.
        n_classes: Classes.
    """

    def __init__(self, in_features: int, hidden: int, n_classes: int):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(in_features, hidden), nn.LayerNorm(hidden), nn.ReLU(), nn.Linear(hidden, n_classes)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Map a batch of samples to their logits."""
        return self.layers(inputs)
