"""Bit-flip: a Byzantine client does its work and sends the opposite.

Cong Xie, Oluwasanmi Koyejo, Indranil Gupta. Phocas: Dimensional Byzantine-Resilient Stochastic Gradient Descent. 2018.
arXiv:1805.09682.  Sai Praneeth Karimireddy, Lie He, Martin Jaggi. Byzantine-Robust Learning on Heterogeneous Datasets
via Bucketing. ICLR 2022. arXiv:2006.09365.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.base import Adversary, AttackContext, Momentum
from lightning_fl.ranges import FiniteFloat
from lightning_fl.updates.updates import Updates


class BitFlip(Adversary):
    """Send -factor times what an honest client would send, computed by each Byzantine client on its own data.

    Args:
        factor: 1 in most papers, 10 in some.
        momentum: Whether Byzantine clients have the honest ones' momentum, if any.  "own": each has.  "none":
            -factor times what this round alone gives (Karimireddy et al.).
        window: See `Adversary`.

    Note:
        Nobody flips bits: the name stays from papers whose attack flips the sign bit.  `lightning_fl.adversary.ipm`
        sends -factor times the mean of the *others'* updates.
    """

    knows = "data"

    def __init__(self, factor: FiniteFloat = 1.0, momentum: Momentum = "own", **window: Any):
        super().__init__(**window)
        self.factor = factor
        self.momentum: Momentum = momentum

    @override
    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        return -self.factor * context.trained(context.byzantine, self.momentum)
