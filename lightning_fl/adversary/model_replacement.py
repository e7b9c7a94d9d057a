"""Model replacement: a backdoored update, scaled until averaging lands on the backdoored model.

Eugene Bagdasaryan, Andreas Veit, Yiqing Hua, Deborah Estrin, Vitaly Shmatikov. How To Backdoor Federated Learning.
AISTATS 2020. arXiv:1807.00459.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.backdoor import shorten
from lightning_fl.adversary.badnets import Badnets
from lightning_fl.adversary.base import AttackContext
from lightning_fl.ranges import PositiveFloat


class ModelReplacement(Badnets):
    """Train as `Badnets` and scale the updates by gamma, so that their share of the average is their own mean.

    Args:
        factor: gamma.  None: n / b, for b of n clients that attack.
        max_norm: Length to which a longer update is scaled first, so that norms do not give it away
            ("train-and-scale").  None: none.
        badnets: Settings of `lightning_fl.adversary.badnets.Badnets`.

    Note:
        This is the paper's attack without its constrained loss, which honest clients' code lacks.  n / b assumes
        equal clients; under weights by samples held the exact factor is one over the attackers' share.

    What two of ten clients send after training:

    >>> import torch
    >>> from lightning_fl.contract import world
    >>> ModelReplacement().finish(torch.tensor([[1.0, 2.0], [3.0, 0.0]]), 10, world.context())
    tensor([[ 5., 10.],
            [15.,  0.]])
    """

    def __init__(self, factor: PositiveFloat | None = None, max_norm: PositiveFloat | None = None, **badnets: Any):
        super().__init__(**badnets)
        self.factor = factor
        self.max_norm = max_norm

    @override
    def finish(self, updates: Float[Tensor, "b d"], n: int, context: AttackContext) -> Float[Tensor, "b d"]:
        if self.max_norm is not None:
            updates = shorten(updates, self.max_norm)
        return updates * (n / len(updates) if self.factor is None else self.factor)
