"""A client of your own."""

import torch
from torch import nn

from lightning_fl import Client, ClientBatch, ClientResult, Round
from lightning_fl.client.base import minibatches
from lightning_fl.ranges import PositiveFloat, PositiveInt


class MyClient(Client):
    """Upload the gradient of one mini-batch, shortened to a largest length.

    Args:
        radius: The largest length, above 0.
        batch_size: Samples a client draws each round.  None: all.
    """

    def __init__(self, radius: PositiveFloat = 1.0, batch_size: PositiveInt | None = None):
        super().__init__()
        self.radius = radius
        self.batch_size = batch_size

    def updates(
        self, model: nn.Module, batch: ClientBatch, this_round: Round, out: torch.Tensor | None = None
    ) -> ClientResult:
        """Compute one update per client, into ``out`` if it is given."""
        (drawn,) = minibatches(batch, self.batch_size, this_round)
        result = self.gradients(model, drawn, out)
        lengths = result.updates.norm(dim=1, keepdim=True)
        result.updates.mul_((self.radius / lengths).clamp(max=1))
        return result
