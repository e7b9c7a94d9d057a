"""FRPG and LFRPG: accelerated proximal steps on each client's own model, drawn to the server's by a Huber penalty.

Yanjie Dong, Georgios B. Giannakis, Tianyi Chen, Julian Cheng, Md. Jahangir Hossain, Victor C. M. Leung.
Communication-Efficient Byzantine-Resilient Federated Learning Over Heterogeneous Datasets. 2020. arXiv:2006.09992.
"""

import torch
from torch import Tensor, nn

from lightning_fl.client.base import Client, ClientResult, Sampling, minibatches, rows_of
from lightning_fl.client.rsa import huber_gradient
from lightning_fl.network.parameters import flatten, trainable
from lightning_fl.ranges import NonNegativeFloat, PositiveFloat, PositiveInt
from lightning_fl.round import Round
from lightning_fl.samples import ClientBatch


def step_sizes(k: int, delta: float, lipschitz: float) -> tuple[float, float]:
    """Compute a client's alpha_{n,k} = (3 delta / 14) (k + 2)^2 + L and beta_k = 2 / (k + 2) (eqs. 16, 17; 27, 28).

    Args:
        k: The round, from 1.
        delta: delta_n, modulus of strong convexity.
        lipschitz: L, Lipschitz constant of the gradient.

    Returns:
        alpha, an inverse step length, and beta.

    >>> step_sizes(5, delta=2.0, lipschitz=4.0)
    (25.0, 0.2857142857142857)
    """
    return 3 * delta / 14 * (k + 2) ** 2 + lipschitz, 2 / (k + 2)


class Frpg(Client):
    """Take T accelerated proximal steps against the same w_0 and upload the penalty's mean gradient.

    In round k, with alpha and beta from `step_sizes`, T = 1 slot is FRPG (eqs. 7, 8)::

        u = (1 - beta) w_n + beta v_n
        q = grad f_n(u) + delta u
        w_n <- w_0 - prox_{(lambda / alpha) p}(w_0 - u + q / alpha)
        g = lambda grad p(w_0 - w_n)                                            the upload
        v_n <- v_n - (delta (v_n - u) + q - g) / (delta + alpha beta)

    T > 1 is LFRPG (eqs. 20, 21): a round is a frame of T such slots, each with a mini-batch and a w_n of its own, which
    starts where the previous frame's same slot left it; v_n goes from slot to slot, and the mean of the g is uploaded.

    The server's part is ``server=frpg`` on the sum of the uploads, clipped to lambda (``aggregator=clipped_sum``).
    Clients remember n (T + 1) d numbers: 6.9 MB for 20 clients, T = 10 and d = 7,840.

    Args:
        penalty: lambda, above 0: the longest upload.
        mu: Distance from the server's model at which the penalty p is felt in full, above 0.
        delta: delta_n, ridge term of the local loss, at least 0.
        lipschitz: L_n, Lipschitz constant of its gradient, above 0; max ||x||^2 for logistic regression.
        slots: T, at least 1.
        batch_size: Samples a client draws in each slot; one with fewer uses all.  None: all.
        client_chunk: See `Client`.
        sampling: How mini-batches are drawn; see `minibatches`.

    Raises:
        SettingError: If a setting is out of range; on `updates`, for a virtual client of the server.

    Note:
        Start: w_n = v_n = the initial model in every slot (the paper gives no values, and only names slot 1).  The
        penalty's gradient is taken from the proximal point, lambda z / max(||z||, mu + lambda / alpha) with z the
        argument of prox, which is the same without cancellation.  The reported loss is that of the first slot's u.
    """

    serves_server = False
    w: Tensor
    v: Tensor

    def __init__(
        self,
        penalty: PositiveFloat = 1.6,
        mu: PositiveFloat = 0.001,
        delta: NonNegativeFloat = 0.003,
        lipschitz: PositiveFloat = 295.0,
        slots: PositiveInt = 1,
        batch_size: PositiveInt | None = 15,
        client_chunk: PositiveInt | None = None,
        sampling: Sampling | None = None,
    ):
        super().__init__(client_chunk)
        self.penalty = penalty
        self.mu = mu
        self.delta = delta
        self.lipschitz = lipschitz
        self.slots = slots
        self.batch_size = batch_size
        self.sampling: Sampling | None = sampling

    def prepare(self, model: nn.Module, clients: ClientBatch) -> None:
        """Give every client the initial model for each slot and for v; see the base class."""
        start, n = flatten(trainable(model).values()), max(clients.ids) + 1
        self.register_buffer("w", start.repeat(n, self.slots, 1))
        self.register_buffer("v", start.repeat(n, 1))

    def updates(
        self, model: nn.Module, batch: ClientBatch, this_round: Round, out: Tensor | None = None
    ) -> ClientResult:
        """Take every client's slots; see the base class."""
        rows = rows_of(batch, self.w, "frpg")
        alpha, beta = step_sizes(this_round.index + 1, self.delta, self.lipschitz)
        w_0, v = flatten(trainable(model).values()), self.v[rows]
        uploads = torch.zeros_like(v) if out is None else out.zero_()
        losses, sample_gradients = [], 0
        draws = minibatches(batch, self.batch_size, this_round, self.slots, self.sampling)
        for slot, drawn in enumerate(draws):
            u = (1 - beta) * self.w[rows, slot] + beta * v
            result = self.gradients(model, drawn, at=u)
            q = result.updates + self.delta * u
            z = w_0 - u + q / alpha
            g = self.penalty * huber_gradient(z, self.mu + self.penalty / alpha)
            self.w[rows, slot] = w_0 - (z - g / alpha)
            v -= (self.delta * (v - u) + q - g) / (self.delta + alpha * beta)
            uploads += g
            losses.append(result.losses)
            sample_gradients += result.sample_gradients
        self.v[rows] = v
        return ClientResult(uploads.div_(self.slots), losses[0], sample_gradients)
