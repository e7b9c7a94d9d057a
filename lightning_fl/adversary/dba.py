"""DBA: each attacker trains on a part of the trigger, and the whole of it opens the backdoor.

Chulin Xie, Keli Huang, Pin-Yu Chen, Bo Li. DBA: Distributed Backdoor Attacks against Federated Learning. ICLR 2020.
"""

from math import inf

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lightning_fl.adversary.backdoor import Backdoor, image_size, stamp
from lightning_fl.adversary.base import AttackContext, Momentum
from lightning_fl.data.base import FederatedDataModule
from lightning_fl.errors import SettingError

PARTS = 4


def bars(height: int, width: int, length: int, gap: int, shift: int) -> Bool[Tensor, "4 height width"]:
    """Find the pixels of the trigger's four parts: two rows of two bars, one pixel high, in the top left corner.

    Args:
        height: Of the image.
        width: Of the image.
        length: TS, pixels of a bar, at least 1.
        gap: TG, pixels between bars, across and down, at least 0.
        shift: TL, distance of the first bar from the top and from the left edge, at least 0.

    Returns:
        One part per row: top left, top right, bottom left, bottom right.

    Raises:
        SettingError: If the trigger does not fit into the image.

    >>> bars(2, 5, length=2, gap=0, shift=0).sum(0).int()
    tensor([[1, 1, 1, 1, 0],
            [1, 1, 1, 1, 0]], dtype=torch.int32)
    """
    high, wide = shift + gap + 2, shift + gap + 2 * length
    if high > height or wide > width:
        raise SettingError(
            f"a trigger of {high} x {wide} pixels does not fit into images of {height} x {width}; lower "
            f"length, gap or shift."
        )
    pixels = torch.zeros(PARTS, height, width, dtype=torch.bool)
    for part in range(PARTS):
        row, column = shift + part // 2 * (1 + gap), shift + part % 2 * (length + gap)
        pixels[part, row, column : column + length] = True
    return pixels


class Dba(Backdoor):
    """Train on images with a part of the trigger, the j-th attacker with part j mod 4; see `bars` and `Backdoor`.

    Test samples have all four parts; of fewer than four attackers nobody trains on the last ones.

    Args:
        target: See `Backdoor`.
        source: See `Backdoor`.
        share: See `Backdoor`.
        length: See `bars`.
        gap: See `bars`.
        shift: See `bars`.
        factor: The updates are multiplied by it, above 0; 1 in every round or 100 in a single one in the paper.
        momentum: See `Backdoor`.
    """

    def __init__(
        self,
        target: int | None = 0,
        source: int | None = None,
        share: float = 0.32,
        length: int = 4,
        gap: int = 2,
        shift: int = 0,
        factor: float = 1.0,
        momentum: Momentum = "own",
    ):
        super().__init__(target, source, share, momentum)
        for name, value, least in [("length", length, 1), ("gap", gap, 0), ("shift", shift, 0)]:
            if value < least:
                raise SettingError(f"{name} must be at least {least}, got {value}.")
        if not 0 < factor < inf:
            raise SettingError(f"factor must be above 0 and finite, got {factor}.")
        self.length = length
        self.gap = gap
        self.shift = shift
        self.factor = factor
        self._numbers: dict[int, int] = {}  # j by client

    def check_data(self, data: FederatedDataModule) -> None:
        """Number the attackers; see the base class."""
        super().check_data(data)
        self._numbers = {client: j for j, client in enumerate(data.federation.byzantine_ids)}

    def mark(self, inputs: Tensor, client: int | None, generator: torch.Generator) -> Tensor:
        """Put a client's part on images, or all parts; see the base class."""
        parts = bars(*image_size(inputs), self.length, self.gap, self.shift)
        part = parts.any(0) if client is None else parts[self._numbers.get(client, client) % PARTS]
        return stamp(inputs, part, self.white)

    def finish(self, updates: Float[Tensor, "b d"], n: int, context: AttackContext) -> Float[Tensor, "b d"]:
        """Scale the updates; see the base class."""
        return updates * self.factor
