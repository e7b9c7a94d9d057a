"""One coordinate: all of the room that a norm leaves in high dimension, spent on one number.

El Mahdi El Mhamdi, Rachid Guerraoui, Sebastien Rouault. The Hidden Vulnerability of Distributed Learning in Byzantium.
ICML 2018. arXiv:1802.07927.
"""

from math import inf
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.adversary.search.probe import Probe, climb
from lightning_fl.updates.updates import Updates

Direction = Literal["one", "all"]


class OneCoordinate(Adversary):
    """Send mean + gamma e with the largest gamma for which the rule still trusts a forged row (section 3).

    e is 1 in the coordinate in which honest updates differ most and 0 elsewhere (made for rules by an l_p norm with
    finite p), or (1, ..., 1) (p infinite).  From 0 gamma grows by doubling steps until the rule drops the rows, then
    forward by halved ones.  A rule that gives no weights is asked for the harm ||answer - mean|| instead: gamma grows
    as long as it does.

    Args:
        direction: "one": a single coordinate.  "all": every coordinate equally.
        evaluations: How often to ask the rule, at least 2.
        window: See `Adversary`.

    Note:
        The first step is as long as the vector of standard deviations.  Plain averaging trusts every client, so gamma
        doubles to the end.

    Mean 1 and std sqrt 2; the median of 0, 2 and what is sent is 2 from there on, so that no more is gained:

    >>> from lightning_fl.aggregator.median import Median
    >>> OneCoordinate()(torch.tensor([[0.0], [2.0]]), n_byzantine=1, rule=Median())
    tensor([[2.4142]])
    """

    least_honest = 2
    knows = "rule"
    varies_with = ("weights",)
    searches = True

    def __init__(self, direction: Direction = "one", evaluations: Annotated[int, Ge(2)] = 20, **window: Any):
        super().__init__(**window)
        self.direction: Direction = direction
        self.evaluations = evaluations

    @override
    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        rows = honest.rows
        mean, std = Updates(rows).mean_and_std
        along = torch.ones_like(std)
        if self.direction == "one":
            along = torch.zeros_like(std)
            along.index_fill_(0, std.argmax(), 1.0)
        step = (std.double().norm() / along.double().norm()).item()
        probe = Probe(rows, n_byzantine, context.answer, torch.stack([mean, along]), honest.data_weights)
        weighs = context.trust(probe.candidate([1.0, 0.0])) is not None

        def value(gamma: float) -> float:
            if not weighs:
                return probe.harm([1.0, gamma])
            trusted = context.trust(probe.candidate([1.0, gamma]))
            assert trusted is not None
            return gamma if (trusted[honest.n :] > 0).any() else -inf

        gamma = climb(value, self.evaluations - 1, 0.0, step, ratio=0.5)
        return probe.forged([1.0, gamma]).expand(n_byzantine, -1)
