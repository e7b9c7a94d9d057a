"""A server that knows what a test gives it."""

import torch

from lightning_fl.round import Round
from lightning_fl.server_oracle import GivenServer


class Server(GivenServer):
    """One with a model.

    Args:
        parameters: (d,) the model.
        index: The number of the round.
        learning_rate: The server's rate, which is that of the uploads, too.
        draw: What it draws by; None: as others do.
    """

    parameters = None

    def __init__(self, parameters=None, index=0, learning_rate=0.1, draw=None):
        super().__init__(None)
        self.parameters = None if parameters is None else torch.as_tensor(parameters)
        self.round = Round(index, learning_rate, 0)
        if draw is not None:
            self.generator = lambda purpose: draw
