"""What attacks share whose clients do honest clients' work on data of their own."""

from dataclasses import replace
from typing import Any

from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.base import Adversary, AttackContext, Momentum
from lightning_fl.client.base import Client
from lightning_fl.ranges import PositiveFloat, PositiveInt
from lightning_fl.samples import ClientBatch


class Trained(Adversary):
    """Let the Byzantine clients train as honest ones do, perhaps at a rate and for epochs of their own.

    Args:
        momentum: Whether they have the honest clients' momentum, if any.  "own": each has.  "none": what they compute
            in this round alone.
        learning_rate: Rate of their local steps.  The upload is divided by the honest one still, so that a server that
            averages moves to the mean of the local models.  None: the honest clients'.
        epochs: How many times they go through their samples.  None: as the honest clients.
        window: See `Adversary`.

    Raises:
        SettingError: Before training, if clients take no local steps that these could be of.
    """

    knows = "data"
    unsaid = Adversary.unsaid | {"learning_rate": None, "epochs": None}

    def __init__(
        self,
        momentum: Momentum = "own",
        learning_rate: PositiveFloat | None = None,
        epochs: PositiveInt | None = None,
        **window: Any,
    ):
        super().__init__(**window)
        self.momentum: Momentum = momentum
        self.learning_rate = learning_rate
        self.epochs = epochs

    @override
    def check_client(self, client: Client) -> None:
        client.otherwise(self.learning_rate, self.epochs)

    def trained(self, batch: ClientBatch, context: AttackContext) -> Float[Tensor, "b d"]:
        """What they would send if they trained on a batch.

        Args:
            batch: They and the samples to work on.
            context: What the attacker knows.
        """
        if self.learning_rate is None and self.epochs is None:
            return context.trained(batch, self.momentum)
        own, honest = context.client.otherwise(self.learning_rate, self.epochs), context.client
        rate, divided_by = own.upload_rate(context.round), honest.upload_rate(context.round)
        updates = replace(context, client=own).trained(batch, self.momentum)
        return updates if divided_by == rate or not divided_by else updates * (rate / divided_by)
