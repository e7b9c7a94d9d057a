"""Plain averaging: the rule without a defence, and the yardstick of every other.

H. Brendan McMahan, Eider Moore, Daniel Ramage, Seth Hampson, Blaise Aguera y Arcas. Communication-Efficient Learning of
Deep Networks from Decentralized Data. AISTATS 2017. arXiv:1602.05629.
"""

from jaxtyping import Float
from torch import Tensor

from lightning_fl.aggregator.base import Weighting
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.updates import Updates


class Average(Weighting):
    """Average the updates by their data weights alpha, sum_i alpha_i x_i.

    One non-finite row makes the result non-finite: averaging is honest about having no defence.

    >>> import torch
    >>> Average()(torch.tensor([[0.0, 1.0], [2.0, 5.0]]))
    tensor([1., 3.])
    """

    robust = False

    def weights(self, updates: Updates, server: ServerOracle) -> Float[Tensor, " n"]:
        """Return the data weights; see the base class."""
        return updates.data_weights
