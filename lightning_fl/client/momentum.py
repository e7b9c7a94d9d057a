"""Client momentum: a client sends the running mean of its gradients, which are less noisy than the last one.

Sai Praneeth Karimireddy, Lie He, Martin Jaggi. Learning from History for Byzantine Robust Optimization. ICML 2021.
arXiv:2012.10333.
El-Mahdi El-Mhamdi, Rachid Guerraoui, Sebastien Rouault. Distributed Momentum for Byzantine-resilient Stochastic
Gradient Descent. ICLR 2021.
Sadegh Farhadkhani, Rachid Guerraoui, Nirupam Gupta, Rafael Pinot, John Stephan. Byzantine Machine Learning Made Easy by
Resilient Averaging of Momentums. ICML 2022. arXiv:2205.12173.
"""

from copy import copy
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn

from lightning_fl.client.base import ClientResult, rows_of
from lightning_fl.client.local_sgd import LocalSgd
from lightning_fl.network.parameters import flatten, trainable
from lightning_fl.ranges import PositiveInt
from lightning_fl.round import Round
from lightning_fl.samples import ClientBatch

Start = Literal["zero", "first", "undamped"]


class Momentum(LocalSgd):
    """Upload m_i <- beta m_i + (1 - beta) g_i instead of g_i, what `LocalSgd` would upload: a gradient for one step.

    Clients remember n d numbers.  An absent client keeps its m unchanged.  Byzantine clients that train have an
    m like the others, unless the attack's setting ``momentum`` says none; a virtual client of the server uploads g.

    Args:
        beta: Momentum, in [0, 1); 0 is no momentum.
        start: The form of momentum, one of three in use.  "zero": m = 0 before the first round, so that uploads start
            at (1 - beta) times a gradient (Farhadkhani et al.).  "first": m = g in a client's first round (Karimireddy
            et al.).  "undamped": m <- beta m + g from m = g, in the end 1 / (1 - beta) times as long as the others
            (El-Mhamdi et al.).
        steps: K, local steps; 1: what is averaged is a gradient.
        settings: See `LocalSgd`.

    Raises:
        SettingError: If a setting is out of range.

    Note:
        It takes the place of momentum at the server.  In the end it multiplies the variance of honest updates, which
        misleads rules, by (1 - beta) / (1 + beta), of "undamped" ones relative to their length; what label skew makes
        them differ by it leaves as it is.  The papers have one gradient per round; with more steps the whole upload is
        averaged.
    """

    moves_statistics = False
    m: Tensor
    started: Tensor

    def __init__(
        self,
        beta: Annotated[float, Ge(0), Lt(1)] = 0.9,
        start: Start = "first",
        steps: PositiveInt = 1,
        **settings: Any,
    ):
        super().__init__(steps, **settings)
        self.beta = beta
        self.start = start
        self.remembers = True

    def prepare(self, model: nn.Module, clients: ClientBatch) -> None:
        """Give every client m = 0; see the base class."""
        super().prepare(model, clients)
        start, n = flatten(trainable(model).values()), max(clients.ids) + 1
        self.register_buffer("m", start.new_zeros(n, len(start)))
        self.register_buffer("started", torch.zeros(n, 1, dtype=torch.bool, device=start.device))

    def updates(
        self, model: nn.Module, batch: ClientBatch, this_round: Round, out: Tensor | None = None
    ) -> ClientResult:
        """Take every client's steps and move its m; see the base class."""
        result = super().updates(model, batch, this_round, out)
        if not self.remembers or all(client < 0 for client in batch.ids):  # virtual ones of the server
            return result
        rows = rows_of(batch, self.m, "momentum")
        share = self.m.new_full((len(batch), 1), 1.0 if self.start == "undamped" else 1 - self.beta)
        if self.start == "first":
            share.masked_fill_(~self.started[rows], 1.0)
        self.m[rows] = result.updates[:] = self.m[rows].mul_(self.beta).add_(share * result.updates)
        self.started[rows] = True
        return result

    def without_momentum(self) -> "Momentum":
        """Upload g; see the base class."""
        other = copy(super().without_momentum())
        assert isinstance(other, Momentum)
        other.remembers = False
        return other
