"""Mimic: copy one honest client, so that its classes weigh more than their share.

Sai Praneeth Karimireddy, Lie He, Martin Jaggi. Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing.
ICLR 2022. arXiv:2006.09365.
"""

from jaxtyping import Float
from torch import Tensor

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.errors import SettingError
from lightning_fl.updates import Updates


def mimic(honest: Float[Tensor, "h d"], n_byzantine: int, target: int = 0) -> Float[Tensor, "b d"]:
    """Send copies of one honest client's update.

    Args:
        honest: One honest update a row.
        n_byzantine: How many copies to send.
        target: Which row to copy, 0 <= target < h.

    Returns:
        The forged updates, one vector expanded to n_byzantine rows.

    Raises:
        SettingError: If there is no such row.

    Note:
        The BOBA paper copies "a particular client with biased label distribution"; its code copies row 0, which under
        the pathological partition by pairs holds class 0 only.  Karimireddy et al. choose the target by its variance.

    >>> import torch
    >>> mimic(torch.tensor([[1.0, 0.0], [3.0, 2.0]]), n_byzantine=2, target=1)
    tensor([[3., 2.],
            [3., 2.]])
    """
    if not 0 <= target < len(honest):
        raise SettingError(f"mimic needs a target in [0, {len(honest)}), got {target}.")
    return honest[target].expand(n_byzantine, -1)


class Mimic(Adversary):
    """Copy one honest client's update; see `mimic`."""

    def __init__(self, target: int):
        if target < 0:
            raise SettingError(f"mimic needs a target of at least 0, got {target}.")
        self.target = target

    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        """Forge one round's updates; see the base class."""
        return mimic(honest.rows, n_byzantine, self.target)
