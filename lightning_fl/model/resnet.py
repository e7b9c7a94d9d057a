"""Residual networks for small images.

Kaiming He, Xiangyu Zhang, Shaoqing Ren, Jian Sun. Deep Residual Learning for Image Recognition. CVPR 2016.
arXiv:1512.03385.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lightning_fl.errors import SettingError
from lightning_fl.ranges import Checked, PositiveInt

Norm = Literal["group", "batch"]
Shortcut = Literal["A", "B"]


class Resnet(Checked, nn.Sequential):
    """A convolution 3 x 3 of stride 1, then stages of residual blocks, the mean over pixels, and one linear layer.

    ResNet-20 of the paper's section 4.2 for CIFAR-10 is the default, d = 269,722.  ResNet-18 as it is adapted to 32 x
    32 pixels has widths (64, 128, 256, 512), two blocks per stage and shortcut B: d = 11,173,962.

    Args:
        widths: Channels of each stage; from the second on, its first block halves height and width.
        blocks: Blocks per stage.
        shortcut: Where the shape changes.  "A": every other pixel, and zeros for the new channels, half of them before
            the others and half after.  "B": a convolution 1 x 1 with the stride, normalised.
        norm: "group" | "batch".  The latter keeps batch statistics, which no client uploads: training asks what
            becomes of them (``buffers``).
        groups: Groups of each group normalisation; they divide every width.
        in_channels: Channels of the image.
        n_classes: c, length of the output.

    Raises:
        SettingError: If a count is below 1, a word is unknown, or groups do not divide a width.

    Note:
        Convolutions have no bias, and all parameters start as torch draws them by default, as in the public code of
        federated learning; the paper draws from N(0, 2 / fan_out).  The number of groups is not in the papers that
        train ResNet-20 with group normalisation.

    >>> sum(p.numel() for p in Resnet().parameters())
    269722
    """

    input_shape = (3, 8, 8)  # of any size; the contract's tests take a small one

    def __init__(
        self,
        widths: Sequence[PositiveInt] = (16, 32, 64),
        blocks: PositiveInt = 3,
        shortcut: Shortcut = "A",
        norm: Norm = "group",
        groups: PositiveInt = 2,
        in_channels: PositiveInt = 3,
        n_classes: PositiveInt = 10,
    ):
        if not widths or (norm == "group" and any(width % groups for width in widths)):
            raise SettingError(f"resnet needs widths that are multiples of groups={groups}, got {list(widths)}.")

        def normed(channels: int) -> nn.Module:
            return nn.GroupNorm(groups, channels) if norm == "group" else nn.BatchNorm2d(channels)

        stem = [nn.Conv2d(in_channels, widths[0], 3, padding=1, bias=False), normed(widths[0]), nn.ReLU()]
        stages, width = [], widths[0]
        for stage, following in enumerate(widths):
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                stages.append(_Block(width, following, stride, shortcut, normed))
                width = following
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, n_classes)]
        super().__init__(*stem, *stages, *head)


class _Block(nn.Module):
    """relu(norm(conv(relu(norm(conv(x))))) + shortcut(x)), where the first convolution has the stride."""

    def __init__(self, width: int, following: int, stride: int, shortcut: Shortcut, normed: Callable[[int], nn.Module]):
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(width, following, 3, stride, 1, bias=False),
            normed(following),
            nn.ReLU(),
            nn.Conv2d(following, following, 3, 1, 1, bias=False),
            normed(following),
        )
        self.shortcut: nn.Module = nn.Identity()
        if (stride, width) != (1, following):
            projected = nn.Sequential(nn.Conv2d(width, following, 1, stride, bias=False), normed(following))
            self.shortcut = projected if shortcut == "B" else _Padded(following - width, stride)

    def forward(self, x: Float[Tensor, "n c y x"]) -> Float[Tensor, "n k u v"]:
        return F.relu(self.inner(x) + self.shortcut(x))


class _Padded(nn.Module):
    """Every other pixel, and zeros for the new channels."""

    def __init__(self, more: int, stride: int):
        super().__init__()
        self.more, self.stride = more, stride

    def forward(self, x: Float[Tensor, "n c y x"]) -> Float[Tensor, "n k u v"]:
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.more // 2, self.more - self.more // 2))
