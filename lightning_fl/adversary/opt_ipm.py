"""Opt-IPM: inner-product manipulation whose factor is searched for against the rule at hand.

Youssef Allouah, Sadegh Farhadkhani, Rachid Guerraoui, Nirupam Gupta, Rafael Pinot, John Stephan. Fixing by Mixing: A
Recipe for Optimal Byzantine ML under Heterogeneity. AISTATS 2023. arXiv:2302.01772.

The search is that of their library byzfl, after El Mahdi El Mhamdi, Rachid Guerraoui, Sebastien Rouault. Distributed
Momentum for Byzantine-resilient SGD. ICLR 2021.
"""

from jaxtyping import Float
from torch import Tensor

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.adversary.search.probe import Probe, Rule, check_search, climb
from lightning_fl.updates.updates import Updates


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


class OptIpm(Adversary):
    """Search for the factor of inner-product manipulation against the run's rule, each round anew; see `opt_ipm`."""

    _search = staticmethod(opt_ipm)

    def __init__(self, evaluations: int = 20, start: float = 0.0, step: float = 10.0, ratio: float = 0.8):
        check_search(self._search.__name__, evaluations, start, step, ratio)
        self.evaluations = evaluations
        self.start = start
        self.step = step
        self.ratio = ratio

    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        """Forge one round's updates; see the base class."""
        return self._search(
            honest.rows,
            n_byzantine,
            context.answer,
            honest.data_weights,
            self.evaluations,
            self.start,
            self.step,
            self.ratio,
        )
