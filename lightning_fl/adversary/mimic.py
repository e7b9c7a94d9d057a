"""Mimic: copy one honest client, so that its classes weigh more than their share.

Sai Praneeth Karimireddy, Lie He, Martin Jaggi. Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing.
ICLR 2022. arXiv:2006.09365.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.aggregator.remembering import Memory
from lightning_fl.errors import SettingError
from lightning_fl.ranges import NonNegativeInt, PositiveInt
from lightning_fl.updates.updates import Updates


class Mimic(Adversary):
    """Send copies of one honest client's update.

    Args:
        target: Number of the row to copy, 0 <= target < h.  Where clients are drawn for each round, the row is another
            client's in each.
        window: See `Adversary`.

    Raises:
        SettingError: Before training, if there is no such row.

    Note:
        The BOBA paper copies "a particular client with biased label distribution"; its code copies row 0, which under
        the pathological partition by pairs, where every client takes part, holds class 0 only.  Karimireddy et al.
        choose the target by its variance.

    >>> Mimic(target=1)(torch.tensor([[1.0, 0.0], [3.0, 2.0]]), n_byzantine=2)
    tensor([[3., 2.],
            [3., 2.]])
    """

    def __init__(self, target: NonNegativeInt = 0, **window: Any):
        super().__init__(**window)
        self.target = target

    @override
    def check(self, n_honest: int, n_byzantine: int, n_classes: int) -> None:
        if self.target >= n_honest:
            raise SettingError(
                f"mimic copies row {self.target} of the honest updates, of which a round has {n_honest}; lower "
                f"target, or let more clients take part."
            )

    @override
    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        return honest.by_column(lambda rows: rows[self.target]).expand(n_byzantine, -1)


@dataclass(frozen=True)
class Direction:
    """What the attackers have learned: where honest updates differ most.

    Args:
        z: The direction, at unit length once it has met updates that differ.
        mean: The running mean mu of all honest updates.
        rounds: t, how many rounds it has seen.
        target: Number of the client that was copied last.  None: none yet.
    """

    z: Float[Tensor, " d"]
    mean: Float[Tensor, " d"]
    rounds: int = 0
    target: int | None = None

    def learn(self, honest: Updates) -> "Direction":
        """Take one round into account (Karimireddy et al., appendix).

        With t earlier rounds, mu <- t/(1+t) mu + mean_i x_i / (1+t) and u = sum_i <x_i - mu, z> (x_i - mu),

            z <- t/(1+t) z + u / (||u|| (1+t)), at unit length; where u = 0, z stays.

        Args:
            honest: The honest updates.

        Returns:
            The new direction.

        The updates differ along the first axis only:

        >>> start = Direction(z=torch.tensor([0.6, 0.8]), mean=torch.zeros(2))
        >>> start.learn(Updates(torch.tensor([[1.0, 1.0], [3.0, 1.0]]))).z
        tensor([1., 0.])
        """
        share = 1 / (1 + self.rounds)
        mean = (1 - share) * self.mean + share * honest.by_column(lambda rows: rows.mean(0))
        lengths = _near_one(honest.over_columns(_lengths_along, mean, self.z))
        u = _near_one(honest.by_column(partial(_variation, lengths), mean))
        length = u.norm()
        z = (1 - share) * self.z + share * u / length
        z = torch.where((length > 0) & (z.norm() > 0), z / z.norm(), self.z)
        return Direction(z, mean, self.rounds + 1, self.target)

    def choose(self, honest: Updates, ids: Sequence[int]) -> "Direction":
        """Choose the client farthest along z, the first of equal ones, whose update is finite."""
        lengths = honest.over_columns(torch.matmul, self.z)
        farthest = lengths.where(lengths.isfinite(), -inf).argmax()
        return Direction(self.z, self.mean, self.rounds, ids[int(farthest)])


def _near_one(values: Tensor) -> Tensor:
    """Divide by a power of 2, so that no square of the largest number vanishes or overflows and no digit changes."""
    exponent = torch.frexp(values.abs().max()).exponent
    return torch.ldexp(values, -exponent.clamp(-120, 120))


def _lengths_along(rows: Tensor, mean: Tensor, z: Tensor) -> Tensor:
    return torch.stack([(row - mean) @ z for row in rows])


def _variation(lengths: Tensor, rows: Tensor, mean: Tensor) -> Tensor:
    u = torch.zeros_like(mean)
    for row, length in zip(rows, lengths, strict=True):
        u.add_((row - mean) * length)
    return u


class MimicLearned(Memory, Adversary):
    """Copy the honest client that stands out most along the direction in which honest updates vary most.

    The direction is learned over the first rounds, in each of which the client farthest along it is copied.  From then
    on the last of these is, and in a round without it the one that is then farthest.  See `Direction`.

    Args:
        warm_up: T0, how many rounds are learned from.  None: all.
        window: See `Adversary`.

    Note:
        Learning starts from a random direction, drawn from the run's seed.  A round in which an honest update has NaN
        or inf teaches nothing.
    """

    varies_with = ("seed", "round")

    def __init__(self, warm_up: PositiveInt | None = None, **window: Any):
        super().__init__(**window)
        self.warm_up = warm_up

    @override
    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        self.watch(honest, context)
        ids, last = _ids(honest, context), Direction(**self._last)
        target = last.target if last.target in ids else last.choose(honest, ids).target
        place = list(ids).index(target)  # type: ignore[arg-type]
        return honest.by_column(lambda rows: rows[place]).expand(n_byzantine, -1)

    @override
    def watch(self, honest: Updates, context: AttackContext) -> None:
        if self._remembered:
            learned = Direction(**self._remembered)
        else:
            z = torch.randn(honest.d, generator=context.generator("mimic"), dtype=honest.dtype)
            learned = Direction(z, torch.zeros_like(z))
        z, mean = (v.to(honest.device, honest.dtype, non_blocking=True) for v in (learned.z, learned.mean))
        learned = Direction(z, mean, learned.rounds, learned.target)
        if self.warm_up is None or learned.rounds < self.warm_up:
            now = learned.learn(honest)
            learned = now.choose(honest, _ids(honest, context)) if now.mean.isfinite().all() else learned
        self._last = vars(learned)


def _ids(honest: Updates, context: AttackContext) -> Sequence[int]:
    return range(honest.n) if context.honest_ids is None else context.honest_ids
