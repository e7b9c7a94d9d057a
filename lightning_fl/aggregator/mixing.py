"""What rules on mixtures of the updates share: nearest-neighbour mixing, clipping, bucketing.

Each makes small linear combinations Y = M X of the updates and asks another rule about them.  A weighting a of the rows
of Y is the weighting M^T a of the updates, so that no combination is computed unless a coordinate rule asks for it.

They nest in any order.  The outer one acts first: ARC around nearest-neighbour mixing around a rule is arc(nnm(rule)),
which clips, then mixes, then asks the rule.
"""

from abc import abstractmethod
from dataclasses import replace

import torch
from jaxtyping import Float64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, aggregated
from lightning_fl.aggregator.wrapper import Wrapper
from lightning_fl.errors import SettingError
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.mixed import mix
from lightning_fl.updates.updates import Updates


class Mixing(Wrapper):
    """Ask another rule about combinations of the updates.

    Its weights are those of the updates as sent, M^T a.  Its trust divides what a combination got among its parts.
    """

    hides_clients = True
    """Whether the combinations are of more than one client."""

    @abstractmethod
    def mix(
        self, updates: Updates, server: ServerOracle
    ) -> tuple[Float64[Tensor, "m n"], Float64[Tensor, " m"] | None]:
        """Choose M and the data weights of its rows for `mix`; see `aggregate` for the arguments."""

    def check(self, n: int, n_classes: int) -> None:
        """Check the rule for the number of combinations; see the base class."""
        if self.hides_clients and self.rule.needs_ids:
            raise SettingError(
                f"{type(self.rule).__name__} needs to know who sent which update, got mixtures of several clients from "
                f"{type(self).__name__}; use it by itself or under a rule that only clips."
            )
        super().check(n, n_classes)

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        matrix, shares = self.mix(updates, server)
        result = aggregated(self.rule, mix(updates, matrix, shares), server)
        weights = None if result.weights is None else result.weights.to(matrix) @ matrix
        trust = result.trusted
        if trust is not None:
            totals = matrix.sum(1, keepdim=True)
            trust = trust.to(matrix) @ torch.where(totals != 0, matrix / totals, 0)
        labels = None if self.hides_clients else result.label_distributions
        found = replace(result, weights=weights, trust=trust, label_distributions=labels)
        return replace(found, suspicion=None, accused=None)  # of mixtures, which says nothing of clients


def finite_shares(data_weights: Float64[Tensor, " n"], rows: Tensor) -> Float64[Tensor, " n"]:
    """Take the data weights of the finite rows, given by number; equal ones if these have none."""
    finite = torch.zeros_like(data_weights).index_fill(0, rows, 1)
    shares = data_weights * finite
    return shares if shares.any() else finite


def clipping_scales(norms: Float64[Tensor, " n"], radius: float | Float64[Tensor, ""]) -> Float64[Tensor, " n"]:
    """Compute min(1, radius / ||x_i||) from the norms; 1 for a zero row and for one that is not finite.

    >>> clipping_scales(torch.tensor([0.0, 1.0, 4.0, torch.nan]).double(), radius=2.0)
    tensor([1.0000, 1.0000, 0.5000, 1.0000], dtype=torch.float64)
    """
    return torch.where(norms.isfinite() & (norms > radius), radius / norms, 1)
