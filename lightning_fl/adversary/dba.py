"""DBA: each attacker trains on a part of the trigger, and the whole of it opens the backdoor.

Chulin Xie, Keli Huang, Pin-Yu Chen, Bo Li. DBA: Distributed Backdoor Attacks against Federated Learning. ICLR 2020.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.backdoor import Backdoor, image_size, stamp
from lightning_fl.adversary.base import AttackContext
from lightning_fl.data.base import FederatedDataModule
from lightning_fl.errors import SettingError
from lightning_fl.ranges import NonNegativeInt, PositiveFloat, PositiveInt

PARTS = 4


class Dba(Backdoor):
    """Train on images with a part of the trigger, the j-th attacker with part j mod 4.

    The parts are two rows of two bars, one pixel high, in the top left corner.  Test samples have all four; of fewer
    than four attackers nobody trains on the last ones.

    Args:
        length: TS, pixels of a bar.
        gap: TG, pixels between bars, across and down.
        shift: TL, distance of the first bar from the top and from the left edge, in pixels.
        factor: The updates are multiplied by it; 1 in every round or 100 in a single one in the paper.
        backdoor: Settings of `lightning_fl.adversary.backdoor.Backdoor`: target, source, share and how they train.

    >>> Dba(length=2, gap=0).bars(2, 5).sum(0).int()
    tensor([[1, 1, 1, 1, 0],
            [1, 1, 1, 1, 0]], dtype=torch.int32)
    """

    def __init__(
        self,
        length: PositiveInt = 4,
        gap: NonNegativeInt = 2,
        shift: NonNegativeInt = 0,
        factor: PositiveFloat = 1.0,
        **backdoor: Any,
    ):
        super().__init__(**backdoor)
        self.length = length
        self.gap = gap
        self.shift = shift
        self.factor = factor
        self._numbers: dict[int, int] = {}  # j by client

    def bars(self, height: int, width: int) -> Bool[Tensor, "4 height width"]:
        """Find the pixels of the four parts in an image: top left, top right, bottom left, bottom right.

        Raises:
            SettingError: If they do not fit.
        """
        high, wide = self.shift + self.gap + 2, self.shift + self.gap + 2 * self.length
        if high > height or wide > width:
            raise SettingError(
                f"a trigger of {high} x {wide} pixels does not fit into images of {height} x {width}; lower "
                f"length, gap or shift."
            )
        pixels = torch.zeros(PARTS, height, width, dtype=torch.bool)
        for part in range(PARTS):
            row = self.shift + part // 2 * (1 + self.gap)
            column = self.shift + part % 2 * (self.length + self.gap)
            pixels[part, row, column : column + self.length] = True
        return pixels

    @override
    def check_data(self, data: FederatedDataModule) -> None:
        super().check_data(data)
        self._numbers = {client: j for j, client in enumerate(data.federation.byzantine_ids)}

    @override
    def mark(self, inputs: Tensor, client: int | None, generator: torch.Generator) -> Tensor:
        parts = self.bars(*image_size(inputs))
        part = parts.any(0) if client is None else parts[self._numbers.get(client, client) % PARTS]
        return stamp(inputs, part, self.white)

    @override
    def finish(self, updates: Float[Tensor, "b d"], n: int, context: AttackContext) -> Float[Tensor, "b d"]:
        return updates * self.factor
