"""RLR, robust learning rate: turn the sign of a rule's answer where too few clients agree on the direction.

Mustafa Safa Ozdayi, Murat Kantarcioglu, Yulia R. Gel. Defending against Backdoors in Federated Learning with Robust
Learning Rate. AAAI 2021. arXiv:2007.03767.
"""

from collections.abc import Collection
from math import ceil

import torch

from lightning_fl.aggregator.base import Aggregation, Aggregator, Motion, aggregated
from lightning_fl.aggregator.signs import sign_sums
from lightning_fl.aggregator.wrapper import Wrapper
from lightning_fl.errors import SettingError
from lightning_fl.ranges import NonNegativeFloat
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.updates import Updates


class Rlr(Wrapper):
    """Take a_k of a rule's answer where |sum_i sign(x_ik)| >= theta, and -a_k elsewhere (equation 4).

    The server then steps back from what only a few clients want, as a backdoor is.

    Args:
        rule: The rule; the authors take the average, the median or the sign vote.
        threshold: theta, 0 <= theta <= n, a number of clients; 0 is the rule itself.  It should exceed the number of
            attackers, and honest clients that all agree reach it only up to n - f.  Authors: 4 of 10 or 8 of 40.

    Note:
        Nothing scales theta with the clients that take part in a round.  Coordinates in which few updates have an entry
        (dead units, rare words) never reach it, and are driven backwards.  An update with NaN or inf has no vote.

    Three signs agree in the first coordinate, and one is left over in the second:

    >>> from lightning_fl.aggregator.average import Average
    >>> Rlr(Average(), threshold=2.0)(torch.tensor([[1.0, 4.0], [2.0, -2.0], [3.0, 1.0]]))
    tensor([ 2., -1.])
    """

    def __init__(self, rule: Aggregator, threshold: NonNegativeFloat = 8.0):
        super().__init__(rule)
        self.threshold = threshold

    @property
    def moves_with(self) -> Collection[Motion]:
        """A scale, if the rule does; see the base class."""
        return [motion for motion in self.rule.moves_with if motion == "scale"]

    def least_n(self, n_classes: int) -> int:
        """As many as can reach the threshold; see the base class."""
        return max(super().least_n(n_classes), ceil(self.threshold))

    def check(self, n: int, n_classes: int) -> None:
        """Compare the threshold with n; see the base class."""
        super().check(n, n_classes)
        if self.threshold > n:
            raise SettingError(
                f"rlr needs 0 <= threshold <= n, else the server always steps back, got threshold={self.threshold} and "
                f"n={n}; lower aggregator.threshold or add clients."
            )

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        result = aggregated(self.rule, updates, server)
        agree = updates.by_column(sign_sums, mark_broken=True).abs_() >= self.threshold
        update = torch.where(agree, result.update, -result.update)
        reversed_share = 1 - agree.double().mean().item()
        return Aggregation(update, None, {**result.diagnostics, "reversed": reversed_share}, result.trusted)
