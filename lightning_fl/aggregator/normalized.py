"""Fed-NGA: average the directions of the updates, so that nobody's length counts.

Shiyuan Zuo, Xingrun Yan, Rongfei Fan, Li Shen, Puning Zhao, Jie Xu, Han Hu. Byzantine-resilient Federated Learning
Employing Normalized Gradients on Non-IID Datasets. 2024. arXiv:2408.09539.

The rule asks for n lengths, not for n x n inner products, so it costs little more than the plain average.
"""

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates import Updates, finite_rows

# Powers added up in float32 before float64 takes over.
_COLUMNS = 1024
# 1 / length fits float32 above this.
_SHORTEST = torch.finfo(torch.float32).tiny


def row_norms(rows: Float[Tensor, "n d"], p: float = 2.0) -> Float64[Tensor, " n"]:
    """Compute ||x_i||_p at the speed of float32, to about 1e-6.

    A row whose powers overflow or vanish in float32 is computed again in float64, so a norm is NaN or inf only where
    the row holds such a number (or, of float64 rows, has p-th powers beyond float64).

    Args:
        rows: One vector a row.
        p: 1, 2 or inf.

    Returns:
        One norm a row.

    >>> row_norms(torch.tensor([[3.0, 4.0], [3e30, 4e30]]))
    tensor([5.0000e+00, 5.0000e+30], dtype=torch.float64)
    """
    wide = torch.promote_types(rows.dtype, torch.float32)
    blocks = (rows.shape[1] - 1) // _COLUMNS
    head, tail = rows.tensor_split([blocks * _COLUMNS], dim=1)
    parts = torch.linalg.vector_norm(head.unflatten(1, (blocks, _COLUMNS)), p, dim=2, dtype=wide)
    rest = torch.linalg.vector_norm(tail, p, dim=1, keepdim=True, dtype=wide)
    norms = torch.linalg.vector_norm(torch.cat([parts, rest], dim=1), p, dim=1, dtype=torch.float64)
    doubtful = ~((norms > 1e-12) & norms.isfinite())
    if doubtful.any():
        norms[doubtful] = torch.linalg.vector_norm(rows[doubtful], p, dim=1, dtype=torch.float64)
    return norms


def normalized_weights(norms: Float64[Tensor, " n"], data_weights: Float64[Tensor, " n"]) -> Float64[Tensor, " n"]:
    """Weigh each row by alpha_i / ||x_i||, and by 0 where that is no number; see `normalized_average`.

    >>> normalized_weights(torch.tensor([5.0, 0.0, torch.nan]).double(), torch.tensor([0.5, 0.25, 0.25]).double())
    tensor([0.1000, 0.0000, 0.0000], dtype=torch.float64)
    """
    finite_rows(norms, "normalized")
    return torch.where(norms.isfinite() & (norms > _SHORTEST), data_weights / norms, 0)


def normalized_average(
    updates: Float[Tensor, "n d"], weights: Float[Tensor, " n"] | None = None
) -> Float[Tensor, " d"]:
    """Average the updates at unit length, sum_i alpha_i x_i / ||x_i||_2 (eq. 24).

    The norm is of the whole flat vector, so the result is never longer than 1.

    Args:
        updates: One update a row.
        weights: alpha, at least 0 with a positive sum; normalised to sum 1.  None: equal.

    Returns:
        The weighted mean direction.

    Raises:
        SettingError: If updates are not a floating-point matrix, the weights do not fit it, or no update is finite.

    Note:
        The paper does not say what a row without direction (zero, NaN, inf) adds.  Here it adds nothing and the others
        keep their alpha, so the step gets shorter.

    >>> normalized_average(torch.tensor([[3.0, 4.0], [0.0, 20.0]]))
    tensor([0.3000, 0.9000])
    """
    rows = Updates(updates, weights)
    return rows.combine(normalized_weights(row_norms(updates), rows.data_weights))


class Normalized(Aggregator):
    """Average the updates at unit length by their data weights; see `normalized_average`.

    Its weights are the factors of the updates as sent, alpha_i / ||x_i||; its trust is alpha_i.
    """

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        weights = normalized_weights(row_norms(updates.rows), updates.data_weights)
        trust = torch.where(weights > 0, updates.data_weights, 0)
        return Aggregation(updates.combine(weights), weights, trust=trust)
