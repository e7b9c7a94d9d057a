"""The BOBA paper's net for CIFAR-10, from TensorFlow's tutorial on convolutional networks.

Wenxuan Bao, Jun Wu, Jingrui He. BOBA: Byzantine-Robust Federated Learning with Label Skewness. AISTATS 2024.
arXiv:2208.12932.
"""

from typing import Annotated

from annotated_types import Ge
from torch import nn

from lightning_fl.model.mlp import Mlp
from lightning_fl.ranges import Checked, PositiveInt


class Cnn(Checked, nn.Sequential):
    """Convolutions 3 x 3 of 32, 64 and 64 channels with ReLU, 2 x 2 maximum pooling between them, then 1024-64-c.

    For images of 3 x 32 x 32 and ten classes, d = 122,570.

    Args:
        in_channels: Channels of the image.
        side: Height and width of the image in pixels, at least 18.
        n_classes: c, length of the output.

    Raises:
        SettingError: If the image is too small, or a width is below 1.

    >>> sum(p.numel() for p in Cnn(3, 32, 10).parameters())
    122570
    """

    def __init__(self, in_channels: PositiveInt = 3, side: Annotated[int, Ge(18)] = 32, n_classes: PositiveInt = 10):
        pixels = ((side - 2) // 2 - 2) // 2 - 2
        super().__init__(
            nn.Conv2d(in_channels, 32, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3),
            nn.ReLU(),
            *Mlp(64 * pixels**2, (64,), n_classes),
        )
