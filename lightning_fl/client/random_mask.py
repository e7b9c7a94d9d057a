"""Random masks: clients send some entries, drawn anew in each round.

RoSDHB, AISTATS 2026. arXiv:2508.17129.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from annotated_types import Gt, Le
from jaxtyping import Float, Int64
from torch import Tensor
from typing_extensions import override

from lightning_fl.client.base import Client
from lightning_fl.client.wrapper import Wrapper, kept
from lightning_fl.round import Round


class RandomMask(Wrapper):
    """Send d/k times each of k = max(1, floor(ratio d)) entries drawn at random, and nothing of the others.

    Everybody can draw the mask, so that an entry costs 32 bits.

    Args:
        client: The client to wrap.  With `Momentum` momenta are masked; `Rosdhb` with ratio=1 makes momenta of what the
            masks let through, as its paper does.
        ratio: Share of the entries that are sent, 0 < ratio <= 1.
        mask: "common", the same for all clients in a round, or "own", another one for each, whose seed of 64 bits it
            sends.

    Note:
        What attackers forge is cut to the mask, too; they have seen honest entries that are multiplied already.
    """

    def __init__(
        self,
        client: Client,
        ratio: Annotated[float, Gt(0), Le(1)] = 0.25,
        mask: Literal["common", "own"] = "common",
    ):
        super().__init__(client)
        self.ratio = ratio
        self.mask = mask

    def drawn(self, client: int, d: int, this_round: Round) -> Int64[Tensor, " k"]:
        """Which entries a client sends in a round.

        Args:
            client: Its number.
            d: How many entries there are.
            this_round: The round.
        """
        whose = () if self.mask == "common" else (client,)
        return torch.randperm(d, generator=this_round.generator("mask", *whose))[: kept(self.ratio, d)]

    @override
    def send(self, rows: Float[Tensor, "h d"], ids: Sequence[int], this_round: Round) -> None:
        d = rows.shape[1]
        rows.copy_(self.read(rows, ids, this_round)).mul_(d / kept(self.ratio, d))

    @override
    def read(self, forged: Float[Tensor, "b d"], ids: Sequence[int], this_round: Round) -> Float[Tensor, "b d"]:
        forged = super().read(forged, ids, this_round)
        found, entries = torch.zeros_like(forged).contiguous(), None
        for row, into, client in zip(forged, found, ids, strict=True):
            if self.mask == "own" or entries is None:
                entries = self.drawn(client, len(row), this_round).to(row.device)
            into[entries] = row[entries]
        return found

    @override
    def bits_up(self, d: int) -> int:
        return 32 * kept(self.ratio, d) + (64 if self.mask == "own" else 0)
