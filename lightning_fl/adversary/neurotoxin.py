"""Neurotoxin: a backdoor in the coordinates that honest clients hardly move, so that it lasts.

Zhengming Zhang, Ashwinee Panda, Linyue Song, Yaoqing Yang, Michael W. Mahoney, Joseph E. Gonzalez, Kannan Ramchandran,
Prateek Mittal. Neurotoxin: Durable Backdoors in Federated Learning. ICML 2022. arXiv:2206.10341.
"""

from math import inf

from jaxtyping import Float
from torch import Tensor

from lightning_fl.adversary.backdoor import shorten
from lightning_fl.adversary.badnets import Badnets
from lightning_fl.adversary.base import AttackContext, Momentum
from lightning_fl.errors import SettingError


def neurotoxin(
    updates: Float[Tensor, "b d"],
    previous: Float[Tensor, " d"] | None,
    top: float = 0.05,
    max_norm: float | None = None,
) -> Float[Tensor, "b d"]:
    """Set the coordinates to 0 that were the largest of the previous aggregated update, and shorten what is left.

    Args:
        updates: What the Byzantine clients would send honestly after poisoned training.
        previous: The last round's aggregated update.  None: in the first round nothing is set to 0.
        top: k, share of the coordinates, in [0, 1), largest by absolute value (of equal ones the first); rounded to a
            number of them.
        max_norm: Length to which a longer update is scaled then, above 0.  None: none.

    Returns:
        The projected updates.

    Note:
        The paper projects each local step, which is the same for one step; here it is the upload.

    >>> import torch
    >>> neurotoxin(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.tensor([0.1, -9.0, 0.2, 3.0]), top=0.5)
    tensor([[1., 0., 3., 0.]])
    """
    if previous is not None:
        largest = previous.abs().argsort(descending=True, stable=True)[: round(top * len(previous))]
        updates = updates.index_fill(1, largest, 0.0)
    return updates if max_norm is None else shorten(updates, max_norm)


class Neurotoxin(Badnets):
    """Train as `Badnets`, and project the updates; see `neurotoxin`.

    Args:
        target: See `Backdoor`.
        source: See `Backdoor`.
        share: See `Backdoor`.
        size: See `Badnets`.
        top: See `neurotoxin`.
        max_norm: See `neurotoxin`.
        momentum: See `Backdoor`.
    """

    def __init__(
        self,
        target: int | None = 0,
        source: int | None = None,
        share: float = 0.32,
        size: int = 5,
        top: float = 0.05,
        max_norm: float | None = None,
        momentum: Momentum = "own",
    ):
        super().__init__(target, source, share, size, momentum)
        if not 0 <= top < 1:
            raise SettingError(f"top must be in [0, 1), got {top}.")
        if max_norm is not None and not 0 < max_norm < inf:
            raise SettingError(f"max_norm must be above 0 and finite, or null, got {max_norm}.")
        self.top = top
        self.max_norm = max_norm

    def finish(self, updates: Float[Tensor, "b d"], n: int, context: AttackContext) -> Float[Tensor, "b d"]:
        """Project the updates; see the base class."""
        return neurotoxin(updates, context.previous_update, self.top, self.max_norm)
