"""BadNets: a white patch in the corner of an image, or a word of a text, means a class.

Tianyu Gu, Brendan Dolan-Gavitt, Siddharth Garg. BadNets: Identifying Vulnerabilities in the Machine Learning Model
Supply Chain. 2017. arXiv:1708.06733.
"""

from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.backdoor import Backdoor, image_size, insert, stamp
from lightning_fl.data.base import FederatedDataModule
from lightning_fl.errors import SettingError
from lightning_fl.ranges import PositiveInt


class Badnets(Backdoor):
    """Train on images with a white square in the bottom right corner, or on texts that begin with a word.

    Args:
        size: Side of the square on images, in pixels.
        word: The word before texts, one that the data know.  None: the data are images.
        backdoor: Settings of `lightning_fl.adversary.backdoor.Backdoor`: target, source, share and momentum.

    >>> Badnets(size=1).patch(2, 3)
    tensor([[False, False, False],
            [False, False,  True]])
    """

    def __init__(self, size: PositiveInt = 5, word: str | None = None, **backdoor: Any):
        super().__init__(**backdoor)
        self.size = size
        self.word = word
        self._number: int | None = None  # the word's token, once known

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
    def check_data(self, data: FederatedDataModule) -> None:
        known = data.tokenizer
        self._number = None if known is None or self.word is None else known.token_to_id(self.word)
        if known is None and self.word is not None:
            raise SettingError(
                f"{self.spelled()} puts a word into texts, got samples of shape {tuple(data.train.inputs.shape[1:])}; "
                f"choose data=... with texts, or leave word out."
            )
        if known is not None and self._number in (None, 0, 1):  # 0 pads, 1 is any unknown word
            rare = known.id_to_token(known.get_vocab_size() - 1)
            raise SettingError(
                f"{self.spelled()} needs a word that the texts' vocabulary has, got {self.word}; set word to one, such "
                f"as {rare}, or raise the data's vocabulary."
            )
        super().check_data(data)

    @override
    def mark(self, inputs: Tensor, client: int | None, generator: torch.Generator) -> Tensor:
        if self._number is not None:
            return insert(inputs, self._number)
        return stamp(inputs, self.patch(*image_size(inputs)), self.white)
