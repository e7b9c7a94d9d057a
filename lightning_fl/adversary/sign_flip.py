"""Sign-flip: three times the sum of the honest updates, against them.

Shiyuan Zuo, Xingrun Yan, Rongfei Fan, Li Shen, Puning Zhao, Jie Xu, Han Hu. Byzantine-resilient Federated Learning
Employing Normalized Gradients on Non-IID Datasets (Fed-NGA). 2024. arXiv:2408.09539.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.ranges import FiniteFloat
from lightning_fl.updates.updates import Updates


class SignFlip(Adversary):
    """Send -factor times the sum of the honest updates, g_b = -3 sum_m g_m, without data weights.

    Args:
        factor: 3 in Fed-NGA and RAGA.
        in_turn: Whether the sum takes in what the attackers before it sent, too: the k-th of them, counted from 0, then
            sends -factor (1 - factor)^k times the sum of the honest updates, so that with factor 3 signs alternate and
            lengths double.  float32 holds about 120 of these.
        window: See `Adversary`.

    Note:
        Both papers write the sum over the honest clients; times the mean is inner-product manipulation, see
        `lightning_fl.adversary.ipm`.  Their tables fit attackers in turn, as a loop sends them that replaces one
        after another and sums the honest updates and those replaced before (RESULTS.md).

    >>> honest = torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    >>> SignFlip()(honest, n_byzantine=1)
    tensor([[ -9., -18.]])
    >>> SignFlip(in_turn=True)(honest, n_byzantine=3)
    tensor([[ -9., -18.],
            [ 18.,  36.],
            [-36., -72.]])
    """

    def __init__(self, factor: FiniteFloat = 3.0, in_turn: bool = False, **window: Any):
        super().__init__(**window)
        self.factor = factor
        self.in_turn = in_turn

    @override
    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        total = honest.by_column(lambda rows: rows.sum(0))
        if not self.in_turn:
            return (-self.factor * total).expand(n_byzantine, -1)
        factors = -self.factor * (1 - self.factor) ** torch.arange(n_byzantine, dtype=torch.float64)
        return factors.to(total)[:, None] * total
