"""Sign-flip: three times the sum of the honest updates, against them.

Shiyuan Zuo, Xingrun Yan, Rongfei Fan, Li Shen, Puning Zhao, Jie Xu, Han Hu. Byzantine-resilient Federated Learning
Employing Normalized Gradients on Non-IID Datasets (Fed-NGA). 2024. arXiv:2408.09539.
"""

from jaxtyping import Float
from torch import Tensor

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.errors import check_finite
from lightning_fl.updates import Updates


def sign_flip(honest: Float[Tensor, "h d"], n_byzantine: int, factor: float = 3.0) -> Float[Tensor, "b d"]:
    """Send -factor times the sum of the honest updates, g_b = -3 sum_m g_m, without data weights.

    Args:
        honest: One honest update per row.
        n_byzantine: How many copies to send.
        factor: 3 in Fed-NGA and RAGA.

    Returns:
        The forged updates, one vector expanded to n_byzantine rows.

    Note:
        Both papers take the sum; times the mean is inner-product manipulation, see `lightning_fl.adversary.ipm`.

    >>> import torch
    >>> sign_flip(torch.tensor([[3.0, 4.0], [0.0, 2.0]]), n_byzantine=1)
    tensor([[ -9., -18.]])
    """
    return (-factor * honest.sum(0)).expand(n_byzantine, -1)


class SignFlip(Adversary):
    """Send -factor times the sum of the honest updates; see `sign_flip`."""

    def __init__(self, factor: float = 3.0):
        check_finite("sign_flip's factor", factor)
        self.factor = factor

    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        """Forge one round's updates; see the base class."""
        return honest.by_column(lambda rows: sign_flip(rows, n_byzantine, self.factor))
