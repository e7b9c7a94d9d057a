"""Neurotoxin: a backdoor in the coordinates that honest clients hardly move, so that it lasts.

Zhengming Zhang, Ashwinee Panda, Linyue Song, Yaoqing Yang, Michael W. Mahoney, Joseph E. Gonzalez, Kannan Ramchandran,
Prateek Mittal. Neurotoxin: Durable Backdoors in Federated Learning. ICML 2022. arXiv:2206.10341.
"""

from typing import Annotated, Any

from annotated_types import Ge, Lt
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.backdoor import shorten
from lightning_fl.adversary.badnets import Badnets
from lightning_fl.adversary.base import AttackContext
from lightning_fl.ranges import PositiveFloat


class Neurotoxin(Badnets):
    """Train as `Badnets` and set the coordinates to 0 that were the largest of the previous aggregated update.

    In the first round nothing is set to 0.

    Args:
        top: k, share of the coordinates, in [0, 1), largest by absolute value (of equal ones the first); rounded to a
            number of them.
        max_norm: Length to which a longer update is scaled then.  None: none.
        badnets: Settings of `lightning_fl.adversary.badnets.Badnets`.

    Note:
        The paper projects each local step, which is the same for one step; here it is the upload.

    >>> import torch
    >>> from dataclasses import replace
    >>> from lightning_fl.contract import world
    >>> context = replace(world.context(), previous_update=torch.tensor([0.1, -9.0, 0.2, 3.0]))
    >>> Neurotoxin(top=0.5).finish(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), 10, context)
    tensor([[1., 0., 3., 0.]])
    """

    def __init__(
        self, top: Annotated[float, Ge(0), Lt(1)] = 0.05, max_norm: PositiveFloat | None = None, **badnets: Any
    ):
        super().__init__(**badnets)
        self.top = top
        self.max_norm = max_norm

    @override
    def finish(self, updates: Float[Tensor, "b d"], n: int, context: AttackContext) -> Float[Tensor, "b d"]:
        previous = context.previous_update
        if previous is not None:
            largest = previous.abs().argsort(descending=True, stable=True)[: round(self.top * len(previous))]
            updates = updates.index_fill(1, largest, 0.0)
        return updates if self.max_norm is None else shorten(updates, self.max_norm)
