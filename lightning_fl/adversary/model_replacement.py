"""Model replacement: a backdoored update, scaled until averaging lands on the backdoored model.

Eugene Bagdasaryan, Andreas Veit, Yiqing Hua, Deborah Estrin, Vitaly Shmatikov. How To Backdoor Federated Learning.
AISTATS 2020. arXiv:1807.00459.
"""

from math import inf

from jaxtyping import Float
from torch import Tensor

from lightning_fl.adversary.backdoor import shorten
from lightning_fl.adversary.badnets import Badnets
from lightning_fl.adversary.base import AttackContext, Momentum
from lightning_fl.errors import SettingError


def model_replacement(
    updates: Float[Tensor, "b d"], n: int, factor: float | None = None, max_norm: float | None = None
) -> Float[Tensor, "b d"]:
    """Scale poisoned updates by gamma, by default n / b, so that their share of the average is their own mean.

    Args:
        updates: What the b Byzantine clients would send honestly after poisoned training.
        n: How many updates the server averages.
        factor: gamma, above 0.  None: n / b.
        max_norm: Length to which a longer update is scaled first, above 0, so that norms do not give it away
            ("train-and-scale").  None: none.

    Returns:
        gamma times the updates.

    Note:
        This is the paper's attack without its constrained loss, which honest clients' code lacks.  n / b assumes
        equal clients; under weights by samples held the exact factor is one over the attackers' share.

    >>> import torch
    >>> model_replacement(torch.tensor([[1.0, 2.0], [3.0, 0.0]]), n=10)
    tensor([[ 5., 10.],
            [15.,  0.]])
    """
    if max_norm is not None:
        updates = shorten(updates, max_norm)
    return updates * (n / len(updates) if factor is None else factor)


class ModelReplacement(Badnets):
    """Train as `Badnets`, and scale the updates; see `model_replacement`.

    Args:
        target: See `Backdoor`.
        source: See `Backdoor`.
        share: See `Backdoor`.
        size: See `Badnets`.
        factor: See `model_replacement`.
        max_norm: See `model_replacement`.
        momentum: See `Backdoor`.
    """

    def __init__(
        self,
        target: int | None = 0,
        source: int | None = None,
        share: float = 0.32,
        size: int = 5,
        factor: float | None = None,
        max_norm: float | None = None,
        momentum: Momentum = "own",
    ):
        super().__init__(target, source, share, size, momentum)
        for name, value in [("factor", factor), ("max_norm", max_norm)]:
            if value is not None and not 0 < value < inf:
                raise SettingError(f"{name} must be above 0 and finite, or null, got {value}.")
        self.factor = factor
        self.max_norm = max_norm

    def finish(self, updates: Float[Tensor, "b d"], n: int, context: AttackContext) -> Float[Tensor, "b d"]:
        """Scale the updates; see the base class."""
        return model_replacement(updates, n, self.factor, self.max_norm)
