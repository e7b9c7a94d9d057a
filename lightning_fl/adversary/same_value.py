"""Same-value: the same number in every coordinate.

Shiyuan Zuo, Xingrun Yan, Rongfei Fan, Li Shen, Puning Zhao, Jie Xu, Han Hu. Byzantine-resilient Federated Learning
Employing Normalized Gradients on Non-IID Datasets (Fed-NGA). 2024. arXiv:2408.09539.
"""

from jaxtyping import Float
from torch import Tensor

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.errors import check_finite
from lightning_fl.updates.updates import Updates


def same_value(honest: Float[Tensor, "h d"], n_byzantine: int, value: float = 1.0) -> Float[Tensor, "b d"]:
    """Send ``value`` in every coordinate.

    Args:
        honest: One honest update per row; gives length, dtype and device.
        n_byzantine: How many rows to send.
        value: 1 in Fed-NGA.

    Returns:
        The forged updates, one vector expanded to n_byzantine rows.

    >>> import torch
    >>> same_value(torch.zeros(3, 2), n_byzantine=1)
    tensor([[1., 1.]])
    """
    return honest.new_full((honest.shape[1],), value).expand(n_byzantine, -1)


class SameValue(Adversary):
    """Send ``value`` in every coordinate; see `same_value`."""

    def __init__(self, value: float = 1.0):
        check_finite("same_value's value", value)
        self.value = value

    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        """Forge one round's updates; see the base class."""
        return same_value(honest.like, n_byzantine, self.value)
