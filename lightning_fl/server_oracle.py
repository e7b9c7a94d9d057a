"""What the server can compute by itself, from its few labelled samples."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lightning_fl import seeding
from lightning_fl.client.base import Client
from lightning_fl.errors import SettingError
from lightning_fl.samples import ClientBatch


@dataclass
class ServerOracle:
    """The server's own computations at this round's parameters; each is made when first asked for.

    Args:
        model: The global model.
        client: What clients do; the server's virtual clients do the same.
        classes: One virtual client a class; empty when the server has no data.
        round: The round's number, from 0.
        seed: The run's seed.
    """

    model: nn.Module
    client: Client
    classes: ClientBatch
    round: int
    seed: int

    @cached_property
    def class_updates(self) -> Float[Tensor, "c d"]:
        """One update a class, by the same process as the clients' (BOBA's gamma_z).

        Raises:
            SettingError: If the server has no data.
        """
        return self._updates(self.classes)

    @cached_property
    def update(self) -> Float[Tensor, " d"]:
        """The update of one virtual client that holds all of the server's samples.

        Raises:
            SettingError: If the server has no data.
        """
        indices = list(self.classes.indices)
        together = ClientBatch(self.classes.samples, [torch.cat(indices)] if indices else [], [0])
        return self._updates(together)[0]

    def generator(self, purpose: str) -> torch.Generator:
        """A generator for this round's draws of the rule."""
        return seeding.generator(self.seed, "server", purpose, self.round)

    def _updates(self, batch: ClientBatch) -> Tensor:
        if not len(batch):
            raise SettingError("this rule needs server data, got none; set data.server_samples to at least 1.")
        return self.client.updates(self.model, batch).updates
