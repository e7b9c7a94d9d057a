"""Opt-IPM: inner-product manipulation whose factor is searched for against the rule at hand.

Youssef Allouah, Sadegh Farhadkhani, Rachid Guerraoui, Nirupam Gupta, Rafael Pinot, John Stephan. Fixing by Mixing: A
Recipe for Optimal Byzantine ML under Heterogeneity. AISTATS 2023. arXiv:2302.01772.

The search is that of their library byzfl, after El Mahdi El Mhamdi, Rachid Guerraoui, Sebastien Rouault. Distributed
Momentum for Byzantine-resilient SGD. ICLR 2021.
"""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.adversary.search.probe import Probe, climb
from lightning_fl.errors import SettingError
from lightning_fl.ranges import FiniteFloat, Fraction, PositiveInt
from lightning_fl.updates.updates import Updates


class OptIpm(Adversary):
    """Send -t times the honest mean with the t for which the rule's answer is farthest from the mean.

    Args:
        evaluations: How often to ask the rule, each round anew.
        start: The first t.
        step: First step, not 0; doubled until t no longer does more harm.
        ratio: What every further step is multiplied by; see `lightning_fl.adversary.search.probe.climb`.
        window: See `Adversary`.

    Note:
        byzfl asks plain averaging after clipping unless told otherwise; here it is always the run's own rule.  On a
        plateau the search does not move: against a rule that ignores t = 10, it sends what it has found below, at
        worst a row of zeros.

    Averaging has no defence: 0, 10, 30 and 70 are tried, each worse than the one before.

    >>> import torch
    >>> from lightning_fl.aggregator.average import Average
    >>> OptIpm(evaluations=4)(torch.tensor([[1.0], [3.0]]), n_byzantine=1, rule=Average())
    tensor([[-140.]])
    """

    knows = "rule"
    varies_with = ("weights",)
    searches = True

    def __init__(
        self,
        evaluations: PositiveInt = 20,
        start: FiniteFloat = 0.0,
        step: FiniteFloat = 10.0,
        ratio: Fraction = 0.8,
        **window: Any,
    ):
        super().__init__(**window)
        if step == 0:
            raise SettingError(f"{self.spelled()} needs a step other than 0, got {step}; the default is 10.")
        self.evaluations = evaluations
        self.start = start
        self.step = step
        self.ratio = ratio

    def directions(self, honest: Float[Tensor, "h d"]) -> Float[Tensor, "k d"]:
        """Give vectors of which each candidate is a combination."""
        return honest.mean(0)[None]

    def candidate(self, t: float) -> Sequence[float]:
        """Give the coefficients of one."""
        return [-t]

    @override
    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        rows = honest.rows
        probe = Probe(rows, n_byzantine, context.answer, self.directions(rows), honest.data_weights)
        t = climb(lambda t: probe.harm(self.candidate(t)), self.evaluations, self.start, self.step, self.ratio)
        return probe.forged(self.candidate(t)).expand(n_byzantine, -1)
