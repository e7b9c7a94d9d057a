"""FedSGD: a client uploads one gradient.

H. Brendan McMahan, Eider Moore, Daniel Ramage, Seth Hampson, Blaise Aguera y Arcas. Communication-Efficient Learning of
Deep Networks from Decentralized Data. AISTATS 2017. arXiv:1602.05629.
"""

from torch import Tensor, nn

from lightning_fl.client.base import Client, ClientResult, Sampling, minibatches
from lightning_fl.ranges import PositiveInt
from lightning_fl.round import Round
from lightning_fl.samples import ClientBatch


class Gradient(Client):
    """Upload the gradient of the mean loss, g_i = grad L_i(w), over all local samples or over a mini-batch.

    Args:
        batch_size: Samples a client draws each round; one with fewer uses all.  None: all.
        client_chunk: See `Client`.
        sampling: How mini-batches are drawn; see `minibatches`.
    """

    moves_statistics = True

    def __init__(
        self,
        batch_size: PositiveInt | None = None,
        client_chunk: PositiveInt | None = None,
        sampling: Sampling | None = None,
    ):
        super().__init__(client_chunk)
        self.batch_size = batch_size
        self.sampling: Sampling | None = sampling

    def updates(
        self, model: nn.Module, batch: ClientBatch, this_round: Round, out: Tensor | None = None
    ) -> ClientResult:
        """Compute one gradient per client; see the base class."""
        (drawn,) = minibatches(batch, self.batch_size, this_round, sampling=self.sampling)
        return self.gradients(model, drawn, out)
