"""One coordinate: all of the room that a norm leaves in high dimension, spent on one number.

El Mahdi El Mhamdi, Rachid Guerraoui, Sebastien Rouault. The Hidden Vulnerability of Distributed Learning in Byzantium.
ICML 2018. arXiv:1802.07927.
"""

from collections.abc import Callable
from math import inf
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.adversary.search.probe import Probe, Rule, climb
from lightning_fl.adversary.spread import check_spread, mean_and_std
from lightning_fl.errors import SettingError, check_choice
from lightning_fl.updates.updates import Updates

Direction = Literal["one", "all"]
Trust = Callable[[Updates], Float[Tensor, " n"] | None]


def one_coordinate(
    honest: Float[Tensor, "h d"],
    n_byzantine: int,
    rule: Rule,
    trust: Trust = lambda updates: None,
    weights: Float[Tensor, " h"] | None = None,
    direction: Direction = "one",
    evaluations: int = 20,
) -> Float[Tensor, "b d"]:
    """Send mean + gamma e with the largest gamma for which the rule still trusts a forged row (section 3).

    e is 1 in the coordinate in which honest updates differ most and 0 elsewhere (made for rules by an l_p norm with
    finite p), or (1, ..., 1) (p infinite).  From 0 gamma grows by doubling steps until the rule drops the rows, then
    forward by halved ones.  A rule that gives no weights is asked for the harm ||answer - mean|| instead: gamma grows
    as long as it does.

    Args:
        honest: One honest update per row, at least 2.
        n_byzantine: How many copies to send.
        rule: What the server makes of n updates, honest ones first.
        trust: How far the rule trusts each of n updates; None if it gives no weights.
        weights: Data weights of the honest clients; a Byzantine one counts as the average honest one.  None: equal.
        direction: "one": a single coordinate.  "all": every coordinate equally.
        evaluations: How often to ask the rule, at least 2.

    Returns:
        The forged updates, one vector expanded to n_byzantine rows.

    Raises:
        SettingError: If there are fewer than 2 honest updates, or a setting is out of range.

    Note:
        The first step is as long as the vector of standard deviations.  Plain averaging trusts every client, so gamma
        doubles to the end.

    Mean (2, 5); the rule drops what is longer than 9, so (2, 8.775) is the farthest:

    >>> honest = torch.tensor([[2.0, 3.0], [2.0, 7.0]])
    >>> def short(updates):
    ...     return (updates.rows.norm(dim=1) <= 9).double()
    >>> one_coordinate(honest, 1, lambda updates: updates.rows.mean(0), short)
    tensor([[2.0000, 8.7749]])
    """
    _check(direction, evaluations)
    mean, std = mean_and_std(honest, "one_coordinate")
    along = torch.ones_like(std)
    if direction == "one":
        along = torch.zeros_like(std)
        along[std.argmax()] = 1.0
    step = (std.double().norm() / along.double().norm()).item()
    probe = Probe(honest, n_byzantine, rule, torch.stack([mean, along]), weights)
    weighs = trust(probe.candidate([1.0, 0.0])) is not None

    def value(gamma: float) -> float:
        if not weighs:
            return probe.harm([1.0, gamma])
        trusted = trust(probe.candidate([1.0, gamma]))
        assert trusted is not None
        return gamma if (trusted[len(honest) :] > 0).any() else -inf

    gamma = climb(value, evaluations - 1, 0.0, step, ratio=0.5)
    return probe.forged([1.0, gamma]).expand(n_byzantine, -1)


def _check(direction: str, evaluations: int) -> None:
    check_choice("one_coordinate's direction", direction, get_args(Direction))
    if evaluations < 2:
        raise SettingError(f"one_coordinate needs at least 2 evaluations of the rule, got {evaluations}.")


class OneCoordinate(Adversary):
    """Move one coordinate, or all equally, as far as the run's rule trusts it; see `one_coordinate`."""

    def __init__(self, direction: Direction = "one", evaluations: int = 20):
        _check(direction, evaluations)
        self.direction: Direction = direction
        self.evaluations = evaluations

    def check(self, n_honest: int, n_byzantine: int, n_classes: int) -> None:
        """Check that there is a spread; see the base class."""
        check_spread("one_coordinate", n_honest)

    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        """Forge one round's updates; see the base class."""
        return one_coordinate(
            honest.rows,
            n_byzantine,
            context.answer,
            context.trust,
            honest.data_weights,
            self.direction,
            self.evaluations,
        )
