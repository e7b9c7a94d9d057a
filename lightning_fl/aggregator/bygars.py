"""ByGARS: learn on the server's samples how much to trust each client, negative trust included.

Jayanth Regatti, Hao Chen, Abhishek Gupta. ByGARS: Byzantine SGD with Arbitrary Number of Attackers. 2020.
arXiv:2006.13421.  As the baseline of Wenxuan Bao, Jun Wu, Jingrui He. BOBA. AISTATS 2024. arXiv:2208.12932.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation
from lightning_fl.aggregator.remembering import Remembering
from lightning_fl.errors import SettingError
from lightning_fl.ranges import PositiveFloat, PositiveInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.rows import check_shape
from lightning_fl.updates.updates import Updates


def bygars_weights(
    updates: Updates,
    gradient: Callable[[Tensor], Tensor],
    learning_rate: float,
    steps: int,
    step_size: float,
    trust: Float[Tensor, " n"] | None = None,
) -> tuple[Float64[Tensor, " n"], Float64[Tensor, " n"]]:
    """Learn the trust q; see `Bygars`.

    Args:
        updates: The round.
        gradient: Maps an update to the server's gradient after it.
        learning_rate: eta.
        steps: k.
        step_size: alpha.
        trust: q to start from.

    Returns:
        q, and the weights q_i / ||x_i||, 0 for a client that sent zeros, NaN or inf.

    Raises:
        DivergedError: If no update is finite.
    """
    lengths = updates.squares.sqrt()
    finite_rows(lengths, "bygars")
    usable = lengths.isfinite() & (lengths > torch.finfo(updates.dtype).tiny)  # 1 / length must not overflow
    scale = torch.where(usable, 1 / lengths, 0)
    q = torch.zeros_like(lengths) if trust is None else trust.to(lengths)
    for _ in range(steps):
        server = gradient(updates.combine(q * scale))
        check_shape("the server's gradient for bygars", server, updates.d)
        server = server.double() / server.double().norm()
        if not server.isfinite().all():  # a gradient of zero or beyond all numbers has no direction to learn from
            break
        similarity = updates.products(server)
        q = q + step_size * learning_rate * torch.where(usable, similarity * scale, 0)
    return q, q * scale


class Bygars(Remembering):
    """Combine the directions h_i = x_i / ||x_i|| by trust learned on the server's samples, sum_i q_i h_i.

    Repeat ``steps`` times from q = 0: take the server's gradient g at w - eta sum_i q_i h_i, and step

        q_i += alpha eta <h_i, g / ||g||>.

    A client that points against the server's gradient gets negative trust, and helps.  As ||sum_i q_i h_i|| <=
    n steps alpha eta where trust starts from 0, no client can make the server's step large.  One with NaN or inf, or of
    length 0, has no direction and is left out.  The rule's weights are the factors of the updates as sent; its trust is
    q, which may be negative.

    Args:
        steps: k, at least 1.
        step_size: alpha, above 0.
        carry_over: False: trust starts from 0 each round (BOBA).  True: from the last round's (Regatti et al.).

    Note:
        The BOBA authors normalise updates and gradients and forget q after each round; Regatti et al. carry q over.
        The BOBA authors use the first round's rate eta_0 throughout, for trust and for the step.  So the update is
        eta_0 / eta times the sum: a server that steps by -eta times it moves by -eta_0 sum_i q_i h_i, whatever its
        schedule.
    """

    needs_server = "samples"
    searches = True

    def __init__(self, steps: PositiveInt = 3, step_size: PositiveFloat = 0.05, carry_over: bool = False):
        self.steps = steps
        self.step_size = step_size
        self.carry_over = carry_over

    @property
    def needs_ids(self) -> bool:
        """Whether trust is carried over from client to client; see the base class."""
        return self.carry_over

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class.

        Raises:
            SettingError: If the rate is 0, at which no update makes the paper's step; or if trust is carried over and
                the updates do not say whose they are.
        """
        if not server.round.learning_rate > 0:
            raise SettingError(
                f"bygars needs a learning rate above 0, got {server.round.learning_rate}; change the schedule."
            )
        first_rate = self._remembered.get("first_rate", server.round.learning_rate)
        trust, weights = bygars_weights(
            updates,
            lambda update: server.gradient_after(update, first_rate),
            first_rate,
            self.steps,
            self.step_size,
            self._trust_in(updates) if self.carry_over else None,
        )
        self._last = {"first_rate": first_rate}
        if self.carry_over:
            learned = dict(zip(self._ids(updates), trust.tolist(), strict=True))
            self._last["trust"] = self._remembered.get("trust", {}) | learned
        weights = weights * (first_rate / server.round.learning_rate)
        return Aggregation(updates.combination(weights), weights, trust=trust)

    def _ids(self, updates: Updates) -> Sequence[int]:
        if updates.ids is None:
            raise SettingError(
                "bygars carries trust over by client and needs their numbers, got rows that are not single clients; "
                "set carry_over=false."
            )
        return updates.ids

    def _trust_in(self, updates: Updates) -> Tensor:
        """Give the trust in each row's client after earlier rounds; 0 for a new one."""
        trust = self._remembered.get("trust", {})
        return torch.tensor([trust.get(client, 0.0) for client in self._ids(updates)], dtype=torch.float64)
