"""Sum of clipped messages: what RSA, FRPG and LFRPG do with the penalty gradients that clients upload.

Liping Li, Wei Xu, Tianyi Chen, Georgios B. Giannakis, Qing Ling. RSA: Byzantine-Robust Stochastic Aggregation Methods
for Distributed Learning from Heterogeneous Datasets. AAAI 2019. arXiv:1811.03761.
Yanjie Dong, Georgios B. Giannakis, Tianyi Chen, Julian Cheng, Md. Jahangir Hossain, Victor C. M. Leung.
Communication-Efficient Byzantine-Resilient Federated Learning Over Heterogeneous Datasets. 2020. arXiv:2006.09992.
"""

import math
from typing import Literal

import torch
from jaxtyping import Float64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.ranges import PositiveFloat
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.updates import Updates

_TINY = torch.finfo(torch.float64).tiny
_DUAL = {"huber": 2.0, "l2": 2.0, "l1": math.inf, "linf": 1.0}  # the p of the norm in which a gradient is bounded


def clipped_sum_weights(norms: Float64[Tensor, " n"], radius: float) -> Float64[Tensor, " n"]:
    """Weigh each row by min(1, radius / ||x_i||), from the norms; see `ClippedSum`.

    >>> clipped_sum_weights(torch.tensor([0.0, 1.0, 4.0, torch.nan]).double(), radius=2.0)
    tensor([1.0000, 1.0000, 0.5000, 0.0000], dtype=torch.float64)
    """
    finite_rows(norms, "clipped_sum")
    return torch.where(norms.isfinite(), (radius / norms).clamp(max=1), 0)


class ClippedSum(Aggregator):
    """Sum the updates, each shortened to the radius: sum_i x_i min(1, radius / ||x_i||); the sum, not the mean.

    An honest client uploads x_i = lambda grad p(w_0 - w_i), whose norm is at most lambda whatever its model w_i.  So
    with radius = lambda clipping changes no honest message, nor the mean of T of them that LFRPG uploads, and holds
    the Byzantine ones to the bound on which the papers' theorems rest (RSA's server step, FRPG eqs. 6c and 19c).

    Its weights are the factors of the updates as sent; its trust is a client's share of the lengths that are summed.

    Args:
        radius: Largest norm of a summand, above 0: the penalty's lambda.
        penalty: The clients' p.  Clipped is the norm that lambda bounds, p's dual: of "huber" and "l2" the l2 norm, as
            p is the l2 norm or its Huber function (FRPG eq. 30), grad p(z) = z / max(||z||, mu); of "l1" the linf norm,
            as grad p(z) = sign(z), or Huber in each coordinate; of "linf" the l1 norm.

    Note:
        In the papers a Byzantine client may choose its model only, and its gradient follows; clipping leaves it the
        ball that holds all those gradients.  A row with NaN or inf adds nothing.  Data weights are not used.

    >>> ClippedSum(radius=1.0)(torch.tensor([[3.0, 4.0], [0.6, 0.0]]))
    tensor([1.2000, 0.8000])
    """

    sums = True
    moves_with = ("rotation",)

    def __init__(self, radius: PositiveFloat = 1.6, penalty: Literal["huber", "l2", "l1", "linf"] = "huber"):
        self.radius = radius
        self.penalty = penalty

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        norms = updates.norms(_DUAL[self.penalty])
        weights = clipped_sum_weights(norms, self.radius)
        lengths = torch.where(weights > 0, weights * norms, 0)
        return Aggregation(updates.combination(weights), weights, trust=lengths / lengths.sum().clamp(min=_TINY))
