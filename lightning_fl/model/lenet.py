"""LeNet of the Fed-NGA and RAGA papers, for MNIST and for CIFAR-10; byzfl's nets are larger ones.

Yann LeCun, Leon Bottou, Yoshua Bengio, Patrick Haffner. Gradient-Based Learning Applied to Document Recognition.
Proceedings of the IEEE, 1998.
"""

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from lightning_fl.errors import SettingError
from lightning_fl.model.mlp import Mlp
from lightning_fl.ranges import Checked, NonNegativeInt, PositiveInt


class Lenet(Checked, nn.Sequential):
    """Convolutions 5 x 5, each with ReLU and 2 x 2 maximum pooling, then fully connected layers.

    For MNIST, 6 and 16 channels, 256-120-60-10: d = 41,282.  For CIFAR-10, 64 and 64 channels, 1600-384-192-10:
    d = 797,962.

    Args:
        in_channels: Channels of the image.
        side: Height and width of the image in pixels.
        channels: Channels after each convolution.
        hidden: Width of each hidden layer after them.
        n_classes: Length of the output.
        padding: Pixels of zeros around the input of each convolution, at least 0.

    Raises:
        SettingError: If the image is too small for the convolutions, or a width is below 1.

    Note:
        The papers name neither activation nor kind of pooling.  Their second hidden layer has 60 units, LeCun's 84.

    >>> sum(p.numel() for p in Lenet(1, 28, (6, 16), (120, 60), 10).parameters())
    41282
    """

    def __init__(
        self,
        in_channels: PositiveInt = 1,
        side: PositiveInt = 28,
        channels: Sequence[PositiveInt] = (6, 16),
        hidden: Sequence[PositiveInt] = (120, 60),
        n_classes: PositiveInt = 10,
        padding: NonNegativeInt = 0,
    ):
        layers: list[nn.Module] = []
        pixels = side
        for width, following in pairwise([in_channels, *channels]):
            layers += [nn.Conv2d(width, following, 5, padding=padding), nn.ReLU(), nn.MaxPool2d(2)]
            pixels = (pixels + 2 * padding - 4) // 2
        if pixels < 1:
            raise SettingError(f"lenet with {len(channels)} convolutions needs larger images, got side={side}.")
        super().__init__(*layers, *Mlp([in_channels, *channels][-1] * pixels**2, hidden, n_classes))
