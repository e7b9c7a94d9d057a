"""PoisonedFL: push the model the same way in every round, by as much as it is seen to give way.

Yueqi Xie, Minghong Fang, Neil Zhenqiang Gong. Model Poisoning Attacks to Federated Learning via Multi-Round
Consistency. CVPR 2025. arXiv:2404.15611.
"""

from math import exp, lgamma, log
from typing import Annotated, Any

import torch
from annotated_types import Gt, Lt
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from lightning_fl import seeding
from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.aggregator.remembering import Memory
from lightning_fl.errors import SettingError
from lightning_fl.network.parameters import flatten, trainable
from lightning_fl.ranges import PositiveFloat, PositiveInt
from lightning_fl.updates.updates import Updates

_NOT_ZERO = 1e-9


def quantile_of_signs(d: int, share: float = 0.99) -> int:
    """Find the smallest k with P(Bin(d, 1/2) <= k) >= share, at least 1/2: how many of d signs agree by chance.

    >>> quantile_of_signs(4), quantile_of_signs(20)
    (4, 15)
    """
    k = d // 2
    chance = exp(lgamma(d + 1) - lgamma(k + 1) - lgamma(d - k + 1) - d * log(2))  # P(k)
    total = 0.5 + (chance / 2 if d % 2 == 0 else 0)
    while total < share:
        chance *= (d - k) / (k + 1)
        k += 1
        total += chance
    return k


class Poisonedfl(Memory, Adversary):
    """Send what would move the model along signs s, fixed for the run, in proportion to how it moves by itself.

    h = w_t - w_{t-1} is how the model moved, and a how the last forged updates would have moved it alone.  With
    v = |h - a ||h|| / ||a||| the wished movement is c ||h|| (v s) / ||v||, and the update is that over minus the
    server's rate.  Every ``period`` rounds, c is multiplied by ``shrink`` unless more entries of the movement since
    agree with s than would by chance (99 %).

    It goes by the global models only, of which every client has two: no honest update, no data, no rule.

    Args:
        factor: c at first, > 0: 8 in the authors' scripts.
        period: Rounds between two looks at the movement, at least 1.
        shrink: Factor of c after a look that shows no effect, in (0, 1).
        least: c does not shrink below this, > 0.
        window: See `Adversary`.

    Note:
        In the first round, and where the model stayed, the updates are zero.  Forged updates are known as sent, not as
        a rule may have clipped them.  Rounds without an attack are watched: a stays, and c may shrink.

    In a first round there is no movement yet:

    >>> attack = Poisonedfl()
    >>> attack.forged(torch.tensor([1.0, -1.0]), torch.tensor([3.0, 4.0]), None, 8.0)
    tensor([ 24., -32.])
    """

    knows = "models"

    def __init__(
        self,
        factor: PositiveFloat = 8.0,
        period: PositiveInt = 50,
        shrink: Annotated[float, Gt(0), Lt(1)] = 0.7,
        least: PositiveFloat = 0.5,
        **window: Any,
    ):
        super().__init__(**window)
        self.factor = factor
        self.period = period
        self.shrink = shrink
        self.least = least

    def forged(
        self, s: Float[Tensor, " d"], h: Float[Tensor, " d"], a: Float[Tensor, " d"] | None, factor: float
    ) -> Float[Tensor, " d"]:
        """Compute the wished movement; see the class.

        Args:
            s: The signs.
            h: How the model moved.
            a: How the last forged updates alone would have moved it.  None: there were none.
            factor: c.
        """
        length = h.norm()
        v = h.abs() if a is None else (h - a * (length / (a.norm() + _NOT_ZERO))).abs()
        return factor * length * v * s / (v.norm() + _NOT_ZERO)

    def look(
        self, s: Float[Tensor, " d"], movement: Float[Tensor, " d"], w: Float[Tensor, " d"], factor: float
    ) -> float:
        """Shrink the factor if the movement, or where it is 0 the model, does not follow the signs."""
        followed = int((torch.where(movement == 0, w, movement).sign() == s).sum())
        return self._shrunk(factor) if followed < quantile_of_signs(len(s)) else factor

    def _shrunk(self, factor: float) -> float:
        return self.shrink * factor if self.shrink * factor >= self.least else factor

    @override
    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        rate = context.round.learning_rate
        if not rate > 0:
            raise SettingError(f"poisonedfl needs a learning rate > 0, got {rate}; change the schedule.")
        self.watch(honest, context)
        w, a, before = self._last["model"], self._last["a"], self._remembered.get("model")
        wished = torch.zeros_like(w)
        if before is not None and (h := w - before.to(w, non_blocking=True)).any():
            a = None if a is None else a.to(w, non_blocking=True)
            wished = self._last["a"] = self.forged(self._signs(w, context), h, a, self._last["factor"])
        return (-wished / rate).expand(n_byzantine, -1)

    @override
    def watch(self, honest: Updates, context: AttackContext) -> None:
        t, known = context.round.index, self._remembered
        w = flatten(trainable(context.model).values()).to(honest.device, honest.dtype).clone()
        factor, mark = known.get("factor", self.factor), known.get("mark")
        if t > 0 and t % self.period == 0 and mark is not None:
            factor = self.look(self._signs(w, context), w - mark.to(w, non_blocking=True), w, factor)
        if t > 0 and (mark is None or (t - 1) % self.period == 0):
            mark = w
        self._last = {"model": w, "factor": factor, "a": known.get("a"), "mark": mark}

    @staticmethod
    def _signs(w: Float[Tensor, " d"], context: AttackContext) -> Float[Tensor, " d"]:
        draw = seeding.generator(context.round.seed, "poisonedfl")
        return torch.randn(len(w), generator=draw).sign().to(w, non_blocking=True)
