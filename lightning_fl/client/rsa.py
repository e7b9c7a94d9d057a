"""RSA: every client keeps its own model and is drawn to the server's by a penalty.

Liping Li, Wei Xu, Tianyi Chen, Georgios B. Giannakis, Qing Ling. RSA: Byzantine-Robust Stochastic Aggregation Methods
for Distributed Learning from Heterogeneous Datasets. AAAI 2019. arXiv:1811.03761.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lightning_fl.client.base import Client, ClientResult, Sampling, minibatches, rows_of
from lightning_fl.network.parameters import flatten, trainable
from lightning_fl.ranges import NonNegativeFloat, PositiveFloat, PositiveInt
from lightning_fl.round import Round
from lightning_fl.samples import ClientBatch

Norm = Literal["huber", "l2", "l1", "linf"]


def huber_gradient(x: Float[Tensor, "n d"], mu: float) -> Float[Tensor, "n d"]:
    """Compute x / max(||x||, mu), row by row: the gradient of the Huber function of the l2 norm (FRPG eq. 30).

    That function is ||x||^2 / (2 mu) up to ||x|| = mu and ||x|| - mu/2 beyond; its gradient is at most 1 long.

    Args:
        x: One vector per row.
        mu: Distance from which the function is the norm itself, above 0.

    Returns:
        One gradient per row.

    >>> huber_gradient(torch.tensor([[3.0, 4.0], [0.3, 0.4]]), mu=1.0)
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]])
    """
    lengths = torch.linalg.vector_norm(x, dim=1, keepdim=True, dtype=torch.float64)
    return x / lengths.clamp(min=mu).to(x.dtype)


def penalty_gradient(x: Float[Tensor, "n d"], norm: Norm, mu: float) -> Float[Tensor, "n d"]:
    """Compute a subgradient of the penalty p, row by row; 0 at 0.

    Args:
        x: One difference of models per row.
        norm: p.  "huber": see `huber_gradient`.  "l2": x / ||x||.  "l1": sign(x).  "linf": the sign of the largest
            coordinate, there alone (of several the first).
        mu: Distance from which "huber" is the norm itself, above 0.

    Returns:
        One subgradient per row; lengths at most 1 in the dual norm: l2 for "huber" and "l2", linf for "l1", l1 for
        "linf".

    >>> penalty_gradient(torch.tensor([[3.0, -4.0], [0.0, 0.0]]), "l2", mu=10.0)
    tensor([[ 0.6000, -0.8000],
            [ 0.0000,  0.0000]])
    >>> penalty_gradient(torch.tensor([[3.0, -4.0], [0.0, 0.0]]), "linf", mu=10.0)
    tensor([[ 0., -1.],
            [ 0.,  0.]])
    """
    if norm == "l1":
        return x.sign()
    if norm == "linf":
        largest = x.abs().argmax(1, keepdim=True)
        return torch.zeros_like(x).scatter(1, largest, x.gather(1, largest).sign())
    return huber_gradient(x, mu if norm == "huber" else torch.finfo(x.dtype).tiny)


class Rsa(Client):
    """Step on the local loss and the penalty, and upload the penalty's gradient.

    At the local model w_n, the server's model w_0 and the round's rate eta, with s a subgradient of p::

        g_n = lambda s(w_0 - w_n)                                  the upload
        w_n <- w_n - eta (grad f_n(w_n) + delta w_n - g_n)

    The server adds the uploads up, clipped to lambda (``aggregator=clipped_sum``), and steps by SGD at the same rate,
    with weight decay for its own regularisation.

    Args:
        penalty: lambda, above 0: the most that a client moves the server, before the rate.
        norm: p, see `penalty_gradient`.
        mu: Distance from the server's model from which Huber's function is the norm itself, above 0.
        delta: Ridge term of the local loss, at least 0.
        batch_size: Samples a client draws each round; one with fewer uses all.  None: all.
        client_chunk: See `Client`.
        sampling: How mini-batches are drawn; see `minibatches`.

    Raises:
        SettingError: If a setting is out of range; on `updates`, for a virtual client of the server.

    Note:
        RSA's p is an l_p norm.  The FRPG paper compares with RSA at lambda 1.6 without naming p; only its own l2 Huber
        function (or the l2 norm) works there.  Uploads compare the models before this round's step, as in the RSA
        paper; its code takes them after it.  The reported loss is that of the local models.
    """

    serves_server = False
    w: Tensor

    def __init__(
        self,
        penalty: PositiveFloat = 1.6,
        norm: Norm = "huber",
        mu: PositiveFloat = 0.001,
        delta: NonNegativeFloat = 0.003,
        batch_size: PositiveInt | None = 15,
        client_chunk: PositiveInt | None = None,
        sampling: Sampling | None = None,
    ):
        super().__init__(client_chunk)
        self.penalty = penalty
        self.norm = norm
        self.mu = mu
        self.delta = delta
        self.batch_size = batch_size
        self.sampling: Sampling | None = sampling

    def prepare(self, model: nn.Module, clients: ClientBatch) -> None:
        """Give every client the initial model; see the base class."""
        self.register_buffer("w", flatten(trainable(model).values()).repeat(max(clients.ids) + 1, 1))

    def updates(
        self, model: nn.Module, batch: ClientBatch, this_round: Round, out: Tensor | None = None
    ) -> ClientResult:
        """Take every client's step; see the base class."""
        rows = rows_of(batch, self.w, "rsa")
        w = self.w[rows]
        (drawn,) = minibatches(batch, self.batch_size, this_round, sampling=self.sampling)
        result = self.gradients(model, drawn, out, at=w)
        g = self.penalty * penalty_gradient(flatten(trainable(model).values()) - w, self.norm, self.mu)
        self.w[rows] = w - this_round.learning_rate * (result.updates + self.delta * w - g)
        result.updates.copy_(g)
        return result
