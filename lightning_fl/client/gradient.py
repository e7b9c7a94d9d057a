"""FedSGD: a client uploads one gradient.

H. Brendan McMahan, Eider Moore, Daniel Ramage, Seth Hampson, Blaise Aguera y Arcas. Communication-Efficient Learning of
Deep Networks from Decentralized Data. AISTATS 2017. arXiv:1602.05629.
"""

from torch import Tensor, nn

from lightning_fl.client.base import Client, ClientResult
from lightning_fl.samples import ClientBatch


class Gradient(Client):
    """Upload the gradient of the mean loss over all local samples, g_i = grad L_i(w)."""

    def updates(self, model: nn.Module, batch: ClientBatch, out: Tensor | None = None) -> ClientResult:
        """Compute one full-batch gradient a client; see the base class."""
        return self.gradients(model, batch, out)
