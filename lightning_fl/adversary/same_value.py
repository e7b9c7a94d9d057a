"""Same-value: the same number in every coordinate.

Shiyuan Zuo, Xingrun Yan, Rongfei Fan, Li Shen, Puning Zhao, Jie Xu, Han Hu. Byzantine-resilient Federated Learning
Employing Normalized Gradients on Non-IID Datasets (Fed-NGA). 2024. arXiv:2408.09539.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.ranges import FiniteFloat
from lightning_fl.updates.updates import Updates


class SameValue(Adversary):
    """Send ``value`` in every coordinate.

    Args:
        value: 1 in Fed-NGA.
        window: See `Adversary`.

    >>> import torch
    >>> SameValue()(torch.zeros(3, 2), n_byzantine=1)
    tensor([[1., 1.]])
    """

    knows = "nothing"

    def __init__(self, value: FiniteFloat = 1.0, **window: Any):
        super().__init__(**window)
        self.value = value

    @override
    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        return honest.like.new_full((honest.d,), self.value).expand(n_byzantine, -1)
