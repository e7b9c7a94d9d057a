"""CRFL: after every step clip the global model and add noise, so that a vote of noisy copies can be certified.

Chulin Xie, Minghao Chen, Pin-Yu Chen, Bo Li. CRFL: Certifiably Robust Federated Learning against Backdoor Attacks. ICML
2021. arXiv:2106.08283.
"""

from dataclasses import replace
from math import inf

import torch

from lightning_fl.aggregator.base import Aggregation, Aggregator, aggregated
from lightning_fl.aggregator.wrapper import Wrapper
from lightning_fl.errors import SettingError
from lightning_fl.ranges import NonNegativeFloat, PositiveFloat, PositiveInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.updates import Updates


def norm_limit(t: int, slope: float, offset: float, cap: float) -> float:
    """Compute rho_t = min(cap, slope t + offset), the longest model after round t, from 1.

    >>> norm_limit(3, 0.1, 2.0, 15.0)
    2.3
    """
    return min(cap, slope * t + offset)


class Crfl(Wrapper):
    """Answer so that a plain server's step gives w' = clip(w - eta a, rho_t) + N(0, sigma^2 I), a a rule's answer.

    That is (w - w') / eta.  clip(v, rho) = v min(1, rho / ||v||), and rho_t = min(cap, slope t + offset) in round t,
    from 1.  `lightning_fl.theory.crfl` computes the certificate.

    Args:
        rule: The rule; the certificate holds for the average.
        slope: Slope of rho_t, at least 0: 0.1 for MNIST, 0.025 for LOAN, 0.25 for EMNIST.
        offset: Offset of rho_t, > 0: 2 for MNIST and LOAN, 4 for EMNIST.
        cap: Largest rho_t, > 0.
        sigma: Standard deviation of the noise in every parameter, at least 0.
        n_rounds: T, in which no noise is added, as the vote adds it.  None: noise in every round.

    Note:
        The server must be plain SGD: momentum and weight decay break the theorem.  Some public code clips the
        aggregated update in place of the model; no certificate holds for that.
    """

    needs_model = True
    moves_with = ()

    def __init__(
        self,
        rule: Aggregator,
        slope: NonNegativeFloat = 0.1,
        offset: PositiveFloat = 2.0,
        cap: PositiveFloat = 15.0,
        sigma: NonNegativeFloat = 0.01,
        n_rounds: PositiveInt | None = None,
    ):
        super().__init__(rule)
        self.slope = slope
        self.offset = offset
        self.cap = cap
        self.sigma = sigma
        self.n_rounds = n_rounds

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class.

        Raises:
            SettingError: If the server's rate is not a finite number above 0.
        """
        rate, model, t = server.round.learning_rate, server.parameters, server.round.index + 1
        if not 0 < rate < inf:
            raise SettingError(f"crfl needs a finite learning rate above 0, got {rate}; change the schedule.")
        found = aggregated(self.rule, updates, server)
        moved = model - rate * found.update.to(model)
        limit = norm_limit(t, self.slope, self.offset, self.cap)
        length = torch.linalg.vector_norm(moved, dtype=torch.float64)
        after = moved * (limit / length).clamp(max=1).to(moved)
        if self.sigma and t != self.n_rounds:
            draw = server.generator("crfl")
            noise = torch.randn(len(moved), generator=draw, dtype=moved.dtype, device=draw.device)
            after = after + self.sigma * noise.to(moved.device, non_blocking=True)
        answer = ((model - after) / rate).to(updates.dtype)
        return replace(found, answer=answer, weights=None, trust=found.trusted)
