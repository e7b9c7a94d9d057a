"""Who lies, and how."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import pytorch_lightning as pl
import torch
from jaxtyping import Float
from torch import Tensor, nn

from lightning_fl.client.base import Client
from lightning_fl.round import Round
from lightning_fl.samples import ClientBatch
from lightning_fl.updates import Updates


@dataclass(frozen=True)
class AttackContext:
    """What an attacker knows beside the honest updates of the round.

    Args:
        model: The global model, which an attacker must not change.
        client: What honest clients compute.
        byzantine: The Byzantine clients' own samples.
        rule: What the server would make of the n updates (honest ones first), with everybody's true data weights; only
            an adaptive attack asks it.
        round: Which round it is.
    """

    model: nn.Module
    client: Client
    byzantine: ClientBatch
    rule: Callable[[Updates], Float[Tensor, " d"]]
    round: Round

    def generator(self, purpose: str) -> torch.Generator:
        """A generator for this round's draws of the attack."""
        return self.round.generator("adversary", purpose)


class Adversary(pl.Callback, ABC):
    """What Byzantine clients send, found by `FederatedModule` among the trainer's callbacks.

    An attacker is omniscient about the present: it sees every honest update of this round and no future one.
    """

    @abstractmethod
    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        """Forge the updates of one round.

        Args:
            honest: The h honest updates.
            n_byzantine: b, how many updates to forge, at least 1.
            context: What else the attacker knows.

        Returns:
            One forged update a row; an expanded view is fine.
        """
