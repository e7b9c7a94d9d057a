"""RoSDHB: sparse uploads by a common random mask, momentum at the server, then a rule.

Diksha Gupta, Antonio Honsell, Chuan Xu, Nirupam Gupta, Giovanni Neglia. Reconciling Communication Compression and
Byzantine-Robustness in Distributed Learning. AISTATS 2026. arXiv:2508.17129.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt, Le, Lt
from jaxtyping import Float
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator, Motion, aggregated
from lightning_fl.aggregator.remembering import RememberingWrapper, clients_of
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.shares import floored
from lightning_fl.updates.finite import check_any
from lightning_fl.updates.rows import which_finite
from lightning_fl.updates.updates import Updates


class Rosdhb(RememberingWrapper):
    """Ask a rule about momenta of the updates' entries in a random mask.

    Each round k = max(1, floor(ratio d)) coordinates are drawn, the same for all clients.  With g_i = (d/k) x_i there
    and 0 elsewhere, m_i <- beta m_i + (1 - beta) g_i, m_i = 0 before a client is seen, and the rule is asked about the
    m_i of this round's clients.

    Args:
        rule: The rule; lengths grow by up to sqrt(d/k), as for its radii.
        ratio: Share of the coordinates that clients send, 0 < ratio <= 1.
        momentum: beta, 0 <= beta < 1.
        mask: "common", or "own": another one for each client, whose updates then differ by their masks alone.

    Note:
        After the authors' program.  Forged updates are cut to the mask, too, as a server can.  Absent clients' momenta
        stay.  An update with NaN or inf in the mask is left out, and renews nothing.  It remembers an update per
        client.  ``communication/floats_up`` counts whole updates; of clients that mask them (`RandomMask`, with ratio=1
        here) it counts what they send.
    """

    needs_ids = True

    def __init__(
        self,
        rule: Aggregator,
        ratio: Annotated[float, Gt(0), Le(1)] = 0.25,
        momentum: Annotated[float, Ge(0), Lt(1)] = 0.9,
        mask: Literal["common", "own"] = "common",
    ):
        super().__init__(rule)
        self.ratio = ratio
        self.momentum = momentum
        self.mask = mask

    @property
    def moves_with(self) -> Collection[Motion]:
        """A scale, if the rule does; see the base class."""
        return [motion for motion in self.rule.moves_with if motion == "scale"]

    def _drawn(self, updates: Updates, server: ServerOracle, purpose: str) -> Float[Tensor, " d"]:
        """d/k in the mask, 0 elsewhere."""
        k = max(1, floored(self.ratio, updates.d))
        draw = server.generator(purpose)
        chosen = torch.randperm(updates.d, generator=draw, device=draw.device)[:k].to(updates.device, non_blocking=True)
        zeros = torch.zeros_like(updates.like[0]).contiguous()
        return zeros.index_fill(0, chosen, updates.d / k)

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        clients, known = clients_of(updates, "rosdhb"), self._remembered.get("momenta", {})
        names = ["mask"] if self.mask == "common" else [f"mask {client}" for client in clients]
        masks = torch.stack([self._drawn(updates, server, name) for name in names])
        rows = torch.where(masks > 0, updates.rows * masks, 0)  # 0 * inf is NaN
        rows *= 1 - self.momentum
        for row, client in zip(rows, clients, strict=True):
            if client in known:
                row += self.momentum * known[client].to(row)
        finite = which_finite(rows)
        check_any([i for i, fine in enumerate(finite) if fine], f"{updates.n}", "rosdhb")
        renewed = {client: rows[i].clone() for i, client in enumerate(clients) if finite[i]}
        self._last = {"momenta": known | renewed}
        found = aggregated(self.rule, Updates(rows, updates.data_weights, clients, layout=updates.layout), server)
        return replace(found, answer=found.update, weights=None, trust=found.trusted)
