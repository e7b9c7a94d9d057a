"""Opt-IPM: inner-product manipulation whose factor is searched for against the rule at hand.

Youssef Allouah, Sadegh Farhadkhani, Rachid Guerraoui, Nirupam Gupta, Rafael Pinot, John Stephan. Fixing by Mixing: A
Recipe for Optimal Byzantine ML under Heterogeneity. AISTATS 2023. arXiv:2302.01772.

The search is that of their library byzfl, after El Mahdi El Mhamdi, Rachid Guerraoui, Sebastien Rouault. Distributed
Momentum for Byzantine-resilient SGD. ICLR 2021.
"""

from collections.abc import Callable
from math import isfinite

from jaxtyping import Float
from torch import Tensor

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.adversary.probe import Probe, Rule
from lightning_fl.errors import SettingError
from lightning_fl.updates import Updates


def climb(value: Callable[[float], float], evaluations: int, start: float, step: float, ratio: float) -> float:
    """Walk forward from ``start`` with growing steps while the value grows, then with shrinking ones.

    Args:
        value: What to maximise.
        evaluations: How often to ask for it, at least 1, the start included.
        start: The first point.
        step: First step; doubled after each success until the first failure, then multiplied by ``ratio`` after each
            try.
        ratio: In (0, 1).

    Returns:
        The best point tried; only points ahead of the best so far are tried, and of equal values the first counts.

    Below, 0, 1, 3 and 7 are tried, then 5 and 4, then 4.5:

    >>> climb(lambda t: t if t < 5 else 0.0, evaluations=7, start=0.0, step=1.0, ratio=0.5)
    4.5
    """
    best, most, grows = start, value(start), True
    for _ in range(evaluations - 1):
        proposed = best + step
        found = value(proposed)
        better = found > most
        if better:
            best, most = proposed, found
        grows = grows and better
        step *= 2 if grows else ratio
    return best


def opt_ipm(
    honest: Float[Tensor, "h d"],
    n_byzantine: int,
    rule: Rule,
    weights: Float[Tensor, " h"] | None = None,
    evaluations: int = 20,
    start: float = 0.0,
    step: float = 10.0,
    ratio: float = 0.8,
) -> Float[Tensor, "b d"]:
    """Send -t times the honest mean with the t for which the rule's answer is farthest from the mean.

    t is found by `climb`.

    Args:
        honest: One honest update per row.
        n_byzantine: How many copies to send.
        rule: What the server makes of n updates, honest ones first.  A result that is not finite is infinitely far.
        weights: Data weights of the honest clients, for the rule and for the mean from which harm counts; a Byzantine
            one counts as the average honest one.  None: equal.
        evaluations: How often to ask the rule, at least 1.
        start: The first t.
        step: See `climb`; not 0.
        ratio: See `climb`.

    Returns:
        The forged updates, one vector expanded to n_byzantine rows.

    Raises:
        SettingError: If a setting is out of range.

    Note:
        byzfl asks plain averaging after clipping unless told otherwise; here it is always the run's own rule.  On a
        plateau the search does not move: against a rule that ignores t = 10, it sends what it has found below, at
        worst a row of zeros.

    Averaging has no defence: 0, 10, 30 and 70 are tried, each worse than the one before.

    >>> import torch
    >>> opt_ipm(torch.tensor([[1.0], [3.0]]), 1, lambda updates: updates.rows.mean(0), evaluations=4)
    tensor([[-140.]])
    """
    check_search("opt_ipm", evaluations, start, step, ratio)
    probe = Probe(honest, n_byzantine, rule, honest.mean(0)[None], weights)
    t = climb(lambda t: probe.harm([-t]), evaluations, start, step, ratio)
    return probe.forged([-t]).expand(n_byzantine, -1)


def check_search(attack: str, evaluations: int, start: float, step: float, ratio: float) -> None:
    """Check the settings of `climb`.

    Raises:
        SettingError: If one is out of range.
    """
    if evaluations < 1:
        raise SettingError(f"{attack} asks the rule at least once, got {evaluations} evaluations.")
    if not (isfinite(start) and isfinite(step) and step != 0 and 0 < ratio < 1):
        raise SettingError(
            f"{attack} needs a finite start, a finite step that is not 0 and 0 < ratio < 1, got {start}, {step} and "
            f"{ratio}."
        )


class OptIpm(Adversary):
    """Search for the factor of inner-product manipulation against the run's rule, each round anew; see `opt_ipm`."""

    def __init__(self, evaluations: int = 20, start: float = 0.0, step: float = 10.0, ratio: float = 0.8):
        check_search("opt_ipm", evaluations, start, step, ratio)
        self.evaluations = evaluations
        self.start = start
        self.step = step
        self.ratio = ratio

    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        """Forge one round's updates; see the base class."""
        return opt_ipm(
            honest.rows,
            n_byzantine,
            context.answer or context.rule,
            honest.data_weights,
            self.evaluations,
            self.start,
            self.step,
            self.ratio,
        )
