"""BadNets: a white patch in the corner of an image means a class.

Tianyu Gu, Brendan Dolan-Gavitt, Siddharth Garg. BadNets: Identifying Vulnerabilities in the Machine Learning Model
Supply Chain. 2017. arXiv:1708.06733.
"""

import torch
from jaxtyping import Bool
from torch import Tensor

from lightning_fl.adversary.backdoor import Backdoor, image_size, stamp
from lightning_fl.adversary.base import Momentum
from lightning_fl.errors import SettingError


def patch(height: int, width: int, size: int) -> Bool[Tensor, "height width"]:
    """Find the pixels of a square in the bottom right corner.

    Args:
        height: Of the image.
        width: Of the image.
        size: Side of the square, at least 1, in pixels.

    Raises:
        SettingError: If the square does not fit into the image.

    >>> patch(2, 3, size=1)
    tensor([[False, False, False],
            [False, False,  True]])
    """
    if not 1 <= size <= min(height, width):
        raise SettingError(
            f"a trigger of {size} x {size} pixels does not fit into images of {height} x {width}; lower size."
        )
    pixels = torch.zeros(height, width, dtype=torch.bool)
    pixels[-size:, -size:] = True
    return pixels


class Badnets(Backdoor):
    """Train on images with a white patch; see `patch` and `Backdoor`.

    Args:
        target: See `Backdoor`.
        source: See `Backdoor`.
        share: See `Backdoor`.
        size: Side of the patch, at least 1, in pixels.
        momentum: See `Backdoor`.
    """

    def __init__(
        self,
        target: int | None = 0,
        source: int | None = None,
        share: float = 0.32,
        size: int = 5,
        momentum: Momentum = "own",
    ):
        super().__init__(target, source, share, momentum)
        if size < 1:
            raise SettingError(f"size must be at least 1, got {size}.")
        self.size = size

    def mark(self, inputs: Tensor, client: int | None, generator: torch.Generator) -> Tensor:
        """Put the patch on images; see the base class."""
        return stamp(inputs, patch(*image_size(inputs), self.size), self.white)
