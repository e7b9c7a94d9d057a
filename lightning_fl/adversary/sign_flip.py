"""Sign-flip: three times the sum of the honest updates, against them.

Shiyuan Zuo, Xingrun Yan, Rongfei Fan, Li Shen, Puning Zhao, Jie Xu, Han Hu. Byzantine-resilient Federated Learning
Employing Normalized Gradients on Non-IID Datasets (Fed-NGA). 2024. arXiv:2408.09539.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.errors import check_finite
from lightning_fl.updates.updates import Updates


def sign_flip(
    honest: Float[Tensor, "h d"], n_byzantine: int, factor: float = 3.0, in_turn: bool = False
) -> Float[Tensor, "b d"]:
    """Send -factor times the sum of the honest updates, g_b = -3 sum_m g_m, without data weights.

    Args:
        honest: One honest update per row.
        n_byzantine: How many to send.
        factor: 3 in Fed-NGA and RAGA.
        in_turn: Whether the sum takes in what the attackers before it sent, too: the k-th of them, counted from 0, then
            sends -factor (1 - factor)^k times the sum of the honest updates, so that with factor 3 signs alternate and
            lengths double.  float32 holds about 120 of these.

    Returns:
        The forged updates; if not in turn, one vector expanded to n_byzantine rows.

    Note:
        Both papers write the sum over the honest clients; times the mean is inner-product manipulation, see
        `lightning_fl.adversary.ipm`.  Their tables fit attackers in turn, as a loop sends them that replaces one
        after another and sums the honest updates and those replaced before (RESULTS.md).

    >>> honest = torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    >>> sign_flip(honest, n_byzantine=1)
    tensor([[ -9., -18.]])
    >>> sign_flip(honest, n_byzantine=3, in_turn=True)
    tensor([[ -9., -18.],
            [ 18.,  36.],
            [-36., -72.]])
    """
    total = honest.sum(0)
    if not in_turn:
        return (-factor * total).expand(n_byzantine, -1)
    factors = -factor * (1 - factor) ** torch.arange(n_byzantine, dtype=torch.float64)
    return factors.to(total)[:, None] * total


class SignFlip(Adversary):
    """Send -factor times the sum of the honest updates; see `sign_flip`."""

    def __init__(self, factor: float = 3.0, in_turn: bool = False):
        check_finite("sign_flip's factor", factor)
        self.factor = factor
        self.in_turn = in_turn

    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        """Forge one round's updates; see the base class."""
        return honest.by_column(lambda rows: sign_flip(rows, n_byzantine, self.factor, self.in_turn))
