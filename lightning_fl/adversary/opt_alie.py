"""Opt-ALIE: LIE whose factor is searched for against the rule at hand.

Youssef Allouah, Sadegh Farhadkhani, Rachid Guerraoui, Nirupam Gupta, Rafael Pinot, John Stephan. Fixing by Mixing: A
Recipe for Optimal Byzantine ML under Heterogeneity. AISTATS 2023. arXiv:2302.01772.

The search is that of their library byzfl; see `lightning_fl.adversary.opt_ipm`.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.opt_ipm import OptIpm
from lightning_fl.updates.updates import Updates


class OptAlie(OptIpm):
    """Send mean + t std of the honest updates with the t for which the rule's answer is farthest from the mean.

    std is the sample standard deviation of each coordinate.

    Args:
        evaluations: See `lightning_fl.adversary.opt_ipm.OptIpm`.
        start: The first t.
        step: First step, not 0.
        ratio: What shrinks it.

    Note:
        As in byzfl only t ahead of ``start`` are tried: mean - t std never is, unless step is negative.

    Honest mean 3 and std 2; averaging is worst off by the last of 0, 10, 30 and 70.

    >>> from lightning_fl.aggregator.average import Average
    >>> OptAlie(evaluations=4)(torch.tensor([[1.0], [3.0], [5.0]]), n_byzantine=1, rule=Average())
    tensor([[143.]])
    """

    least_honest = 2

    @override
    def directions(self, honest: Float[Tensor, "h d"]) -> Float[Tensor, "k d"]:
        return torch.stack(Updates(honest).mean_and_std)

    @override
    def candidate(self, t: float) -> Sequence[float]:
        return [1.0, t]
