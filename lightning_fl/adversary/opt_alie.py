"""Opt-ALIE: LIE whose factor is searched for against the rule at hand.

Youssef Allouah, Sadegh Farhadkhani, Rachid Guerraoui, Nirupam Gupta, Rafael Pinot, John Stephan. Fixing by Mixing: A
Recipe for Optimal Byzantine ML under Heterogeneity. AISTATS 2023. arXiv:2302.01772.

The search is that of their library byzfl; see `lightning_fl.adversary.opt_ipm`.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_fl.adversary.opt_ipm import OptIpm
from lightning_fl.adversary.search.probe import Probe, Rule, check_search, climb
from lightning_fl.adversary.spread import check_spread, mean_and_std


def opt_alie(
    honest: Float[Tensor, "h d"],
    n_byzantine: int,
    rule: Rule,
    weights: Float[Tensor, " h"] | None = None,
    evaluations: int = 20,
    start: float = 0.0,
    step: float = 10.0,
    ratio: float = 0.8,
) -> Float[Tensor, "b d"]:
    """Send mean + t std of the honest updates with the t for which the rule's answer is farthest from the mean.

    t is found by `lightning_fl.adversary.search.probe.climb`; std is the sample standard deviation of each coordinate.

    Args:
        honest: One honest update per row, at least 2.
        n_byzantine: How many copies to send.
        rule: See `lightning_fl.adversary.opt_ipm.opt_ipm`, also for the other arguments.
        weights: Data weights of the honest clients.
        evaluations: How often to ask the rule, at least 1.
        start: The first t.
        step: First step.
        ratio: What shrinks it.

    Returns:
        The forged updates, one vector expanded to n_byzantine rows.

    Raises:
        SettingError: If there are fewer than 2 honest updates, or a setting is out of range.

    Note:
        As in byzfl only t ahead of ``start`` are tried: mean - t std never is, unless step is negative.

    Honest mean 3 and std 2; averaging is worst off by the last of 0, 10, 30 and 70.

    >>> opt_alie(torch.tensor([[1.0], [3.0], [5.0]]), 1, lambda updates: updates.rows.mean(0), evaluations=4)
    tensor([[143.]])
    """
    check_search("opt_alie", evaluations, start, step, ratio)
    probe = Probe(honest, n_byzantine, rule, torch.stack(mean_and_std(honest, "opt_alie")), weights)
    t = climb(lambda t: probe.harm([1.0, t]), evaluations, start, step, ratio)
    return probe.forged([1.0, t]).expand(n_byzantine, -1)


class OptAlie(OptIpm):
    """Search for LIE's factor against the run's rule, each round anew; see `opt_alie`."""

    _search = staticmethod(opt_alie)

    def check(self, n_honest: int, n_byzantine: int, n_classes: int) -> None:
        """Check that there is a spread; see the base class."""
        check_spread("opt_alie", n_honest)
