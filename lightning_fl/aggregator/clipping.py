"""Static clipping: shorten long updates to a radius, then ask a rule; with the average, norm bounding.

Ziteng Sun, Peter Kairouz, Ananda Theertha Suresh, H. Brendan McMahan. Can You Really Backdoor Federated Learning? 2019.
arXiv:1911.07963.
"""

from collections.abc import Collection
from dataclasses import replace

import torch
from jaxtyping import Float64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator, Motion
from lightning_fl.aggregator.mixing import Mixing, clipping_scales, finite_shares
from lightning_fl.ranges import NonNegativeFloat
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.updates import Updates


class Clipping(Mixing):
    """Ask another rule about updates no longer than the radius, x_i min(1, radius / ||x_i||), and add noise.

    Norm bounding is the average of these.  An update that is not finite has no direction: it has data weight 0, so that
    the average is of the others.  The metric ``aggregator/clipped`` is the share of updates that were shortened: a
    radius that shortens none holds nobody back.

    Args:
        rule: The rule.
        radius: Largest norm, at least 0; 0 makes every update zero.
        noise: Standard deviation of the normal noise added to each coordinate of the answer, at least 0.

    >>> from lightning_fl.aggregator.average import Average
    >>> Clipping(Average(), radius=1.0)(torch.tensor([[3.0, 4.0], [0.6, 0.0]]))
    tensor([0.6000, 0.4000])
    """

    hides_clients = False

    def __init__(self, rule: Aggregator, radius: NonNegativeFloat = 2.0, noise: NonNegativeFloat = 0.0):
        super().__init__(rule)
        self.radius = radius
        self.noise = noise

    @property
    def moves_with(self) -> Collection[Motion]:
        """A rotation, if the rule does; see the base class."""
        return [motion for motion in self.rule.moves_with if motion == "rotation"]

    def mix(
        self, updates: Updates, server: ServerOracle
    ) -> tuple[Float64[Tensor, "m n"], Float64[Tensor, " m"] | None]:
        """Scale the rows; see the base class."""
        shares = finite_shares(updates.data_weights, finite_rows(updates.squares, "clipping"))
        return clipping_scales(updates.squares.sqrt(), self.radius).diag(), shares

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round, and add noise; see the base class."""
        result = super().aggregate(updates, server)
        clipped = (updates.squares.sqrt() > self.radius).double().mean()
        result = replace(result, diagnostics={**result.diagnostics, "clipped": float(clipped)})
        if not self.noise:
            return result
        draw = server.generator("clipping")
        noise = torch.randn(result.update.shape, generator=draw, device=draw.device).to(result.update)
        return replace(result, answer=result.update + self.noise * noise)
