"""Fed-NGA: average the directions of the updates, so that lengths do not count.

Shiyuan Zuo, Xingrun Yan, Rongfei Fan, Li Shen, Puning Zhao, Jie Xu, Han Hu. Byzantine-resilient Federated Learning
Employing Normalized Gradients on Non-IID Datasets. 2024. arXiv:2408.09539.

The rule asks for n lengths, not for n x n inner products, so it costs little more than the plain average.
"""

import torch
from jaxtyping import Float64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.updates import Updates

# 1 / length fits float32 above this.
_SHORTEST = torch.finfo(torch.float32).tiny


def normalized_weights(norms: Float64[Tensor, " n"], data_weights: Float64[Tensor, " n"]) -> Float64[Tensor, " n"]:
    """Weigh each row by alpha_i / ||x_i||, and by 0 where that is not a number; see `Normalized`.

    >>> normalized_weights(torch.tensor([5.0, 0.0, torch.nan]).double(), torch.tensor([0.5, 0.25, 0.25]).double())
    tensor([0.1000, 0.0000, 0.0000], dtype=torch.float64)
    """
    finite_rows(norms, "normalized")
    return torch.where(norms.isfinite() & (norms > _SHORTEST), data_weights / norms, 0)


class Normalized(Aggregator):
    """Average the updates at unit length, sum_i alpha_i x_i / ||x_i||_2 (eq. 24).

    The norm is of the whole flat vector, so the result is never longer than 1.

    Its weights are the factors of the updates as sent, alpha_i / ||x_i||; its trust is alpha_i.

    Note:
        The paper does not say what a row without direction (zero, NaN, inf) adds.  Here it adds nothing and the others
        keep their alpha, so the step gets shorter.

    >>> import torch
    >>> Normalized()(torch.tensor([[3.0, 4.0], [0.0, 20.0]]))
    tensor([0.3000, 0.9000])
    """

    moves_with = ("rotation",)

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        weights = normalized_weights(updates.norms(), updates.data_weights)
        trust = torch.where(weights > 0, updates.data_weights, 0)
        return Aggregation(updates.combination(weights), weights, trust=trust)
