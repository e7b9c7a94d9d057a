"""Static clipping: shorten long updates to a radius, then ask a rule; with the average, norm bounding.

Ziteng Sun, Peter Kairouz, Ananda Theertha Suresh, H. Brendan McMahan. Can You Really Backdoor Federated Learning? 2019.
arXiv:1911.07963.
"""

from collections.abc import Collection
from dataclasses import replace

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator, Motion
from lightning_fl.aggregator.mixing import Mixing, clipping_scales, finite_shares
from lightning_fl.errors import SettingError
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.rows import finite_rows
from lightning_fl.updates.updates import Updates


def _check(radius: float, noise: float = 0.0) -> None:
    if not 0 <= radius < torch.inf:
        raise SettingError(f"clipping needs a finite radius >= 0, got {radius}; set aggregator.radius.")
    if not 0 <= noise < torch.inf:
        raise SettingError(f"clipping needs finite noise >= 0, got {noise}; set aggregator.noise.")


def clip(updates: Float[Tensor, "n d"], radius: float) -> Float[Tensor, "n d"]:
    """Shorten the updates that are longer than the radius to it, x_i min(1, radius / ||x_i||).

    Args:
        updates: One update per row.
        radius: Largest norm, at least 0; 0 makes every update zero.

    Returns:
        The clipped updates, for any rule; norm bounding is their mean.

    Raises:
        SettingError: If updates are not a floating-point matrix, or radius is out of range.

    Note:
        A row with NaN or inf has no direction and becomes a row of NaN.

    >>> clip(torch.tensor([[3.0, 4.0], [0.6, 0.0]]), radius=1.0)
    tensor([[0.6000, 0.8000],
            [0.6000, 0.0000]])
    """
    _check(radius)
    rows = Updates(updates)
    return rows.mixed(clipping_scales(rows.squares.sqrt(), radius).diag()).rows


class Clipping(Mixing):
    """Ask another rule about clipped updates, and add noise to its answer; see `clip`.

    An update that is not finite has data weight 0, so that the average is of the others.

    Args:
        rule: The rule.
        radius: Largest norm, at least 0.
        noise: Standard deviation of the normal noise added to each coordinate of the answer, at least 0.

    Raises:
        SettingError: If radius or noise is out of range.
    """

    hides_clients = False

    def __init__(self, rule: Aggregator, radius: float = 2.0, noise: float = 0.0):
        super().__init__(rule)
        _check(radius, noise)
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
        if not self.noise:
            return result
        draw = server.generator("clipping")
        noise = torch.randn(result.update.shape, generator=draw, device=draw.device).to(result.update)
        return replace(result, answer=result.update + self.noise * noise)
