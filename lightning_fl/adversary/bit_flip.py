"""Bit-flip: a Byzantine client does its work and sends the opposite.

Cong Xie, Oluwasanmi Koyejo, Indranil Gupta. Phocas: Dimensional Byzantine-Resilient Stochastic Gradient Descent. 2018.
arXiv:1805.09682.  Sai Praneeth Karimireddy, Lie He, Martin Jaggi. Byzantine-Robust Learning on Heterogeneous Datasets
via Bucketing. ICLR 2022. arXiv:2006.09365.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.base import AttackContext
from lightning_fl.adversary.trained import Trained
from lightning_fl.ranges import FiniteFloat
from lightning_fl.updates.updates import Updates


class BitFlip(Trained):
    """Send -factor times what an honest client would send, computed by each Byzantine client on its own data.

    Args:
        factor: 1 in most papers, 10 in some.
        training: See `Trained`; Karimireddy et al. have momentum="none".

    Note:
        Nobody flips bits: the name stays from papers whose attack flips the sign bit.  `lightning_fl.adversary.ipm`
        sends -factor times the mean of the *others'* updates.
    """

    def __init__(self, factor: FiniteFloat = 1.0, **training: Any):
        super().__init__(**training)
        self.factor = factor

    @override
    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        return -self.factor * self.trained(context.byzantine, context)
