"""ROP, relocated orthogonal perturbation: across the direction in which clipping around the last update trusts.

Kerem Ozfatura, Emre Ozfatura, Alptekin Kupcu, Deniz Gunduz. Byzantines can also Learn from History: Fall of Centered
Clipping in Federated Learning. IEEE TIFS 2024. arXiv:2208.09894.
"""

from math import cos, radians, sin
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.adversary.lie import lie_factor
from lightning_fl.ranges import FiniteFloat, NonNegativeFloat, Share
from lightning_fl.updates.updates import Updates


class Rop(Adversary):
    """Send a place between the last update u and the honest mean m, moved by a vector of length z across the two.

    The place is pi u + (1 - pi) m, the vector z q.  With the reference r = lambda u + (1 - lambda) m and p the vector
    of ones minus its projection on r, at unit length,

        q = sin(theta) p + cos(theta) r / ||r||:

    at theta = 90 degrees across r, at 180 straight against it.  In the first round m stands in for u.

    Args:
        factor: z, the length of the perturbation in the unit of updates; against centred clipping about its radius.
            None: LIE's own factor, and 0 where that is negative, with one attacker and few clients.
        angle: theta in degrees.
        location: pi.
        reference: lambda.
        window: See `Adversary`.

    Raises:
        SettingError: Before training, if factor is None and n < 3 or b > h.

    Note:
        The authors' code starts from theta = 180; 90 is the orthogonal perturbation of the title.  A direction that
        does not exist (r = 0, or the ones along r) counts as 0.

    The mean is (2, 0); ones minus their projection on it point along (0, 1):

    >>> Rop(factor=5.0)(torch.tensor([[1.0, 0.0], [3.0, 0.0]]), n_byzantine=1)
    tensor([[2., 5.]])
    """

    def __init__(
        self,
        factor: NonNegativeFloat | None = None,
        angle: FiniteFloat = 90.0,
        location: Share = 0.5,
        reference: Share = 0.9,
        **window: Any,
    ):
        super().__init__(**window)
        self.factor = factor
        self.angle = angle
        self.location = location
        self.reference = reference

    @override
    def check(self, n_honest: int, n_byzantine: int, n_classes: int) -> None:
        self._factor(n_honest, n_byzantine)

    @override
    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        mean = honest.by_column(lambda rows: rows.mean(0))
        last = mean if context.previous_update is None else context.previous_update.to(mean)
        along = _unit((self.reference * last + (1 - self.reference) * mean).double())
        # A projection of rounding is none: ones along the reference have nothing across it.
        across = 1 - along.sum() * along
        across = torch.where(across.norm() > 1e-6 * len(mean) ** 0.5, _unit(across), 0)
        theta = radians(self.angle)
        # At unit length, as these two are orthogonal.
        perturbation = (sin(theta) * across + cos(theta) * along).to(mean)
        place = self.location * last + (1 - self.location) * mean
        return (place + self._factor(honest.n, n_byzantine) * perturbation).expand(n_byzantine, -1)

    def _factor(self, h: int, b: int) -> float:
        return max(lie_factor(h, b), 0.0) if self.factor is None else self.factor


def _unit(vector: Tensor) -> Tensor:
    length = vector.norm()
    return torch.where(length > 0, vector / length, 0)
