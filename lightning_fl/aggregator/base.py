"""What the server does with the updates of a round."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import pytorch_lightning as pl
from jaxtyping import Float
from torch import Tensor

from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates import Updates


@dataclass(frozen=True)
class Aggregation:
    """What a rule made of one round.

    Args:
        update: (d,) what the server subtracts, before its learning rate.
        weights: (n,) a_i with update = sum_i a_i x_i (and what the server's own rows add); None for a coordinate rule.
        diagnostics: Numbers worth a curve, logged under the rule's name.
    """

    update: Float[Tensor, " d"]
    weights: Float[Tensor, " n"] | None = None
    diagnostics: dict[str, float] = field(default_factory=dict)


class Aggregator(pl.Callback, ABC):
    """The server's rule R^{n x d} -> R^d, found by `FederatedModule` among the trainer's callbacks.

    A rule returns a value and writes nowhere.  One that remembers earlier rounds saves itself with Lightning's
    ``state_dict`` and ``load_state_dict``.
    """

    @abstractmethod
    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round.

        Args:
            updates: The n rows of this round; honest ones first, but a rule must not use that.
            server: What the server can compute by itself.
        """

    def check(self, n: int, n_classes: int) -> None:  # noqa: B027  (most rules serve any n)
        """Check the rule's settings before any training.

        Args:
            n: How many updates a round brings.
            n_classes: c, the number of classes, each with a virtual client at the server.

        Raises:
            SettingError: If the rule cannot serve so many.
        """
