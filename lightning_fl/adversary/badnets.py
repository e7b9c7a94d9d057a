"""BadNets: a white patch in the corner of an image means a class.

Tianyu Gu, Brendan Dolan-Gavitt, Siddharth Garg. BadNets: Identifying Vulnerabilities in the Machine Learning Model
Supply Chain. 2017. arXiv:1708.06733.
"""

from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.backdoor import Backdoor, image_size, stamp
from lightning_fl.errors import SettingError
from lightning_fl.ranges import PositiveInt


class Badnets(Backdoor):
    """Train on images with a white square in the bottom right corner.

    Args:
        size: Side of the square, in pixels.
        backdoor: Settings of `lightning_fl.adversary.backdoor.Backdoor`: target, source, share and momentum.

    >>> Badnets(size=1).patch(2, 3)
    tensor([[False, False, False],
            [False, False,  True]])
    """

    def __init__(self, size: PositiveInt = 5, **backdoor: Any):
        super().__init__(**backdoor)
        self.size = size

    def patch(self, height: int, width: int) -> Bool[Tensor, "height width"]:
        """Find the pixels of the square in an image.

        Raises:
            SettingError: If it does not fit.
        """
        if self.size > min(height, width):
            raise SettingError(
                f"a trigger of {self.size} x {self.size} pixels does not fit into images of {height} x {width}; lower "
                f"size."
            )
        pixels = torch.zeros(height, width, dtype=torch.bool)
        pixels[-self.size :, -self.size :] = True
        return pixels

    @override
    def mark(self, inputs: Tensor, client: int | None, generator: torch.Generator) -> Tensor:
        return stamp(inputs, self.patch(*image_size(inputs)), self.white)
