"""Multi-layer perceptron with ReLU."""

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from lightning_fl.ranges import Checked, PositiveInt


class Mlp(Checked, nn.Sequential):
    """Fully connected layers with ReLU between them; inputs are flattened.

    784-200-200-10, the BOBA and Fed-NGA papers' net for MNIST, has d = 199,210 parameters.

    Args:
        in_features: Length of a flattened input.
        hidden: Width of each hidden layer.
        n_classes: Length of the output.

    Raises:
        SettingError: If a width is below 1.

    >>> sum(p.numel() for p in Mlp(784, (200, 200), 10).parameters())
    199210
    """

    def __init__(
        self, in_features: PositiveInt = 784, hidden: Sequence[PositiveInt] = (200, 200), n_classes: PositiveInt = 10
    ):
        layers: list[nn.Module] = [nn.Flatten()]
        for width, following in pairwise([in_features, *hidden]):
            layers += [nn.Linear(width, following), nn.ReLU()]
        super().__init__(*layers, nn.Linear([in_features, *hidden][-1], n_classes))
