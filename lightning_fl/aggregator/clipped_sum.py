"""Sum of clipped messages: what RSA, FRPG and LFRPG do with the penalty gradients that clients upload.

Liping Li, Wei Xu, Tianyi Chen, Georgios B. Giannakis, Qing Ling. RSA: Byzantine-Robust Stochastic Aggregation Methods
for Distributed Learning from Heterogeneous Datasets. AAAI 2019. arXiv:1811.03761.
Yanjie Dong, Georgios B. Giannakis, Tianyi Chen, Julian Cheng, Md. Jahangir Hossain, Victor C. M. Leung.
Communication-Efficient Byzantine-Resilient Federated Learning Over Heterogeneous Datasets. 2020. arXiv:2006.09992.
"""

import math
from typing import Literal, get_args

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.errors import SettingError, check_choice
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.rows import finite_rows
from lightning_fl.updates.updates import Updates

Norm = Literal["l1", "l2", "linf"]
_TINY = torch.finfo(torch.float64).tiny
_P = {"l1": 1.0, "l2": 2.0, "linf": math.inf}
_DUAL: dict[str, Norm] = {"huber": "l2", "l2": "l2", "l1": "linf", "linf": "l1"}


def clipped_sum_weights(norms: Float64[Tensor, " n"], radius: float) -> Float64[Tensor, " n"]:
    """Weigh each row by min(1, radius / ||x_i||), from the norms; see `clipped_sum`.

    >>> clipped_sum_weights(torch.tensor([0.0, 1.0, 4.0, torch.nan]).double(), radius=2.0)
    tensor([1.0000, 1.0000, 0.5000, 0.0000], dtype=torch.float64)
    """
    finite_rows(norms, "clipped_sum")
    return torch.where(norms.isfinite(), (radius / norms).clamp(max=1), 0)


def _check(radius: float, norm: str) -> None:
    if not 0 < radius < math.inf:
        raise SettingError(f"clipped_sum needs a finite radius > 0, got {radius}; set it to the penalty's lambda.")
    check_choice("clipped_sum's norm", norm, get_args(Norm))


def clipped_sum(updates: Float[Tensor, "n d"], radius: float = 1.6, norm: Norm = "l2") -> Float[Tensor, " d"]:
    """Sum the updates, each shortened to the radius: sum_i x_i min(1, radius / ||x_i||).

    An honest client uploads x_i = lambda grad p(w_0 - w_i), whose norm is at most lambda whatever its model w_i.  So
    with radius = lambda clipping changes no honest message, nor the mean of T of them that LFRPG uploads, and holds
    the Byzantine ones to the bound on which the papers' theorems rest.

    Args:
        updates: One penalty gradient per row.
        radius: Largest norm of a summand, lambda > 0.
        norm: The norm that lambda bounds.  "l2": p is the l2 norm or its Huber function (FRPG eq. 30), grad p(z) =
            z / max(||z||, mu).  "linf": p is the l1 norm, grad p(z) = sign(z), or Huber in each coordinate.  "l1": p is
            the linf norm.

    Returns:
        The sum over clients, not the mean (RSA's server step, FRPG eqs. 6c and 19c).

    Raises:
        SettingError: If updates are not a floating-point matrix, radius or norm is out of range, or no update is
            finite.

    Note:
        In the papers a Byzantine client may choose its model only, and its gradient follows; clipping leaves it the
        ball that holds all those gradients.  A row with NaN or inf adds nothing.  Data weights are not used.

    >>> clipped_sum(torch.tensor([[3.0, 4.0], [0.6, 0.0]]), radius=1.0)
    tensor([1.2000, 0.8000])
    """
    _check(radius, norm)
    rows = Updates(updates)
    return rows.combine(clipped_sum_weights(rows.norms(_P[norm]), radius))


class ClippedSum(Aggregator):
    """Sum the clipped updates; see `clipped_sum`.

    Its weights are the factors of the updates as sent; its trust is a client's share of the lengths that are summed.

    Args:
        radius: Largest norm of a summand, above 0: the penalty's lambda.
        penalty: The clients' p: "huber" (of the l2 norm), "l2", "l1" or "linf".  Clipped is the dual norm.

    Raises:
        SettingError: If radius is out of range or penalty is none of these.
    """

    sums = True
    moves_with = ("rotation",)

    def __init__(self, radius: float = 1.6, penalty: Literal["huber", "l2", "l1", "linf"] = "huber"):
        check_choice("penalty", penalty, _DUAL)
        _check(radius, _DUAL[penalty])
        self.radius = radius
        self.penalty = penalty
        self.norm = _DUAL[penalty]

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        norms = updates.norms(_P[self.norm])
        weights = clipped_sum_weights(norms, self.radius)
        lengths = torch.where(weights > 0, weights * norms, 0)
        return Aggregation(updates.combination(weights), weights, trust=lengths / lengths.sum().clamp(min=_TINY))
