"""The bucketing paper's net for MNIST, from PyTorch's own example of early 2020.

Sai Praneeth Karimireddy, Lie He, Martin Jaggi. Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing.
ICLR 2022. arXiv:2006.09365.
"""

from typing import Annotated

from annotated_types import Ge
from torch import nn

from lightning_fl.ranges import Checked, PositiveInt


class BucketingCnn(Checked, nn.Sequential):
    """Convolutions 3 x 3 of 32 and 64 channels, 2 x 2 maximum pooling, dropout, a hidden layer of 128, dropout.

    For MNIST, d = 1,199,882.

    Args:
        in_channels: Channels of the image.
        side: Height and width of the image in pixels, at least 6.
        n_classes: c, length of the output.

    Raises:
        SettingError: If the image is too small, or a width is below 1.

    Note:
        As in the authors' code ReLU follows the first convolution only.  A quarter of the channels is dropped after
        pooling, each as a whole, and half of the hidden layer: its ``Dropout2d`` dropped single numbers there.

    >>> sum(p.numel() for p in BucketingCnn(1, 28, 10).parameters())
    1199882
    """

    def __init__(self, in_channels: PositiveInt = 1, side: Annotated[int, Ge(6)] = 28, n_classes: PositiveInt = 10):
        super().__init__(
            nn.Conv2d(in_channels, 32, 3),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3),
            nn.MaxPool2d(2),
            nn.Dropout2d(0.25),
            nn.Flatten(),
            nn.Linear(64 * ((side - 4) // 2) ** 2, 128),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(128, n_classes),
        )
