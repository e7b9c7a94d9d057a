"""RFA: a few smoothed Weiszfeld steps towards the geometric median, as baselines take them.

Krishna Pillutla, Sham M. Kakade, Zaid Harchaoui. Robust Aggregation for Federated Learning. IEEE Transactions on Signal
Processing 70, 2022. arXiv:1912.13445.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64
from torch import Tensor

from lightning_fl.aggregator.base import Weighting
from lightning_fl.ranges import PositiveFloat, PositiveInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.updates import Updates


def rfa_weights(
    gram: Float64[Tensor, "m m"], weights: Float[Tensor, " n"], nu: float = 0.1, n_iterations: int = 3
) -> Float64[Tensor, " n"]:
    """Weigh the rows from their inner products; see `Rfa`.

    Args:
        gram: Inner products of n client rows followed by the start, about any origin.
        weights: alpha, at least 0 with a positive sum.
        nu: See `Rfa`.
        n_iterations: See `Rfa`.

    Raises:
        SettingError: If no row of positive weight is finite.
    """
    rows = finite_rows(gram.diagonal()[:-1], "rfa", weights)
    rows = torch.cat([rows, rows.new_tensor([len(weights)])])
    inner, alpha = gram[rows][:, rows], F.pad(weights, (0, 1))[rows].double()
    mix = torch.zeros_like(alpha)  # z = sum_i mix_i x_i
    mix[-1] = 1
    for _ in range(n_iterations):
        products = inner @ mix
        squares = mix @ products - 2 * products + inner.diagonal()
        pull = alpha / squares.clamp(min=nu**2).sqrt()
        mix = pull / pull.sum()
    return torch.zeros_like(weights, dtype=torch.float64).index_put((rows[:-1],), mix[:-1])


class Rfa(Weighting):
    """Take n_iterations steps z <- sum w_i x_i / sum w_i, w_i = alpha_i / max(nu, ||z - x_i||), from z = 0.

    alpha are the data weights.

    Args:
        nu: Smallest distance, > 0 in the unit of the updates.  The paper: 1e-6; byzfl: 0.1.
        n_iterations: Steps, at least 1.  The paper: 3 to 5; byzfl: 3; in the experiments with bucketing: 8.

    Note:
        This is for comparisons with results that were measured so: `GeometricMedian` is the minimum that the steps go
        to.  An update with NaN or inf gets weight 0.

    The first step weighs by 1/1, 1/2 and 1/10, and the second starts at 1.875:

    >>> import torch
    >>> Rfa(n_iterations=1)(torch.tensor([[1.0], [2.0], [10.0]]))
    tensor([1.8750])
    """

    moves_with = ("rotation",)

    def __init__(self, nu: PositiveFloat = 0.1, n_iterations: PositiveInt = 3):
        self.nu = nu
        self.n_iterations = n_iterations

    def weights(self, updates: Updates, server: ServerOracle) -> Float[Tensor, " n"]:
        """Weigh one round; see the base class."""
        return rfa_weights(updates.centred.with_zero, updates.data_weights, self.nu, self.n_iterations)
