"""The strongest of inner-product manipulation, LIE and the directions of Min-Max against the rule at hand.

Cong Xie, Oluwasanmi Koyejo, Indranil Gupta. Fall of Empires. UAI 2019. arXiv:1903.03936.
Gilad Baruch, Moran Baruch, Yoav Goldberg. A Little Is Enough. NeurIPS 2019. arXiv:1902.06156.
El Mahdi El Mhamdi, Rachid Guerraoui, Sebastien Rouault. The Hidden Vulnerability of Distributed Learning in Byzantium.
ICML 2018. arXiv:1802.07927.
Virat Shejwalkar, Amir Houmansadr. Manipulating the Byzantine. NDSS 2021.

Every candidate is a combination of four vectors, so that a weighting that is asked about it reads d for its weighted
sum only; see `lightning_fl.adversary.probe`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import inf, sqrt
from typing import get_args

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.adversary.lie import check_spread, mean_and_std
from lightning_fl.adversary.probe import Damage, Probe, Rule
from lightning_fl.errors import SettingError, check_choice
from lightning_fl.updates import Updates

# Places of the grid's factors: from a hundredth of the knee to the knee, and as many beyond.
_KNEE, _BEYOND = 10.0, 2
_EVALUATIONS = 1 + 9 * 4 * 3 // 2  # two thirds of them are four factors on each of nine lines
_PLATEAU = 1e-6  # relative difference of harms that are taken for equal
_GAIN = 0.01  # smallest relative gain worth a question

# From a place t on a line through the honest mean, which is at t = 0, to coefficients of the four vectors.
_Line = Callable[[float], Sequence[float]]


def adaptive(
    honest: Float[Tensor, "h d"],
    n_byzantine: int,
    rule: Rule,
    weights: Float[Tensor, " h"] | None = None,
    evaluations: int = 128,
    max_factor: float = 1e7,
    damage: Damage = "distance",
) -> Float[Tensor, "b d"]:
    """Send what harms a rule most on nine lines through the honest mean m.

    The lines are -gamma m (IPM), and m + gamma p and m - gamma p for four directions p, each as long as the standard
    deviation: std itself (LIE), the direction of m, the signs of m, and the coordinate in which honest updates differ
    most.

    A robust rule trusts a candidate up to some factor and then drops it: harm rises to a cliff with a plateau behind
    it.  So two thirds of the evaluations go to a coarse grid of factors on each line.  The others go, one by one, to
    the middle of the gap that promises most on any line: the harm at its lower end, continued along the last slope to
    its upper end.  Where no gap promises 1 % more than what is found, the search ends early.

    Args:
        honest: One honest update per row, at least 2.
        n_byzantine: How many copies to send.
        rule: What the server makes of n updates, honest ones first.  A result that is not finite is infinite damage.
        weights: Data weights of the honest clients; a Byzantine one counts as the average honest one.  None: equal.
        evaluations: How often to ask the rule at most, at least 55.
        max_factor: Largest gamma, above 0; the smallest is 0.1, or a hundredth of a max_factor below 10.
        damage: What to maximise, with the weighted mean m of the honest updates and the rule's answer r.
            "distance": ||r - m||.  "ascent": -<r, m>, how much a small step against r raises the mean loss.

    Returns:
        The forged updates, one vector expanded to n_byzantine rows.

    Raises:
        SettingError: If there are fewer than 2 honest updates, or a setting is out of range.

    Averaging has no defence: the largest factor wins, -10 times the mean 2.

    >>> adaptive(torch.tensor([[1.0], [3.0]]), 1, lambda updates: updates.rows.mean(0), max_factor=10.0)
    tensor([[-20.]])
    """
    _check(evaluations, max_factor, damage)
    weighted = Updates(honest, weights)
    mean = weighted.combine(weighted.data_weights)
    _, std = mean_and_std(honest, "adaptive")
    length, spread = (torch.linalg.vector_norm(v, dtype=torch.float64).item() for v in (mean, std))
    sign, coordinate = mean.sign(), torch.zeros_like(std)
    coordinate[std.argmax()] = 1.0
    sign_length = torch.linalg.vector_norm(sign, dtype=torch.float64).item()
    probe = Probe(honest, n_byzantine, rule, torch.stack([mean, std, sign, coordinate]), weights)
    unit = spread / length if length else 0.0
    even = spread / sign_length if sign_length else 0.0
    lines: list[_Line] = [
        _along(0, -1.0),  # IPM: -gamma m is at t = 1 + gamma
        *(_along(1, way) for way in (1.0, -1.0)),
        *(_along(0, way * unit) for way in (1.0, -1.0)),
        *(_along(2, way * even) for way in (1.0, -1.0)),
        *(_along(3, way * spread) for way in (1.0, -1.0)),
    ]
    harms = [partial(_harm, probe, line, damage) for line in lines]
    grid = _grid(2 * (evaluations - 1) // 3 // len(lines), max_factor)
    best, t = _search(harms, evaluations, grid)
    return probe.forged(lines[best](t)).expand(n_byzantine, -1)


def _harm(probe: Probe, line: _Line, damage: Damage, t: float) -> float:
    return probe.harm(line(t), damage)


def _along(direction: int, pace: float) -> _Line:
    def line(t: float) -> Sequence[float]:
        coefficients = [1.0, 0.0, 0.0, 0.0]
        coefficients[direction] += pace * t
        return coefficients

    return line


def _grid(count: int, max_factor: float) -> list[float]:
    """Choose the factors that are tried on each line."""
    knee, beyond = (_KNEE, _BEYOND) if max_factor > _KNEE else (max_factor, 0)
    near = count - beyond
    grid = [knee * 100 ** (k / (near - 1) - 1) for k in range(near)]
    return grid + [knee * (max_factor / knee) ** (k / beyond) for k in range(1, beyond + 1)]


def _promise(tried: dict[float, float]) -> tuple[float, float]:
    """Find the gap of a line that promises most: the harm that it may hide, and its middle."""
    best = -inf, 0.0
    places = sorted(tried.items())
    for (t0, harm0), (t1, harm1), (t2, harm2) in zip(places, places[1:], places[2:], strict=False):
        if harm1 < inf and abs(harm2 - harm1) > _PLATEAU * abs(harm1):
            best = max(best, (harm1 + (harm1 - harm0) / (t1 - t0) * (t2 - t1), sqrt(t1 * t2)))
    return best


def _search(harms: Sequence[Callable[[float], float]], evaluations: int, grid: Sequence[float]) -> tuple[int, float]:
    """Find the most harm on lines that meet at t = 0: the line, and the least t tried on it that does the harm."""
    at_mean = harms[0](0.0)
    # The first line is IPM's: it reaches -gamma times the mean at 1 + gamma.
    tried = [
        {0.0: at_mean} | {t: harm(t) for t in (1 + factor if i == 0 else factor for factor in grid)}
        for i, harm in enumerate(harms)
    ]
    for _ in range(evaluations - 1 - len(harms) * len(grid)):
        most = max(max(line.values()) for line in tried)
        promises = [_promise(line) for line in tried]
        i = max(range(len(promises)), key=promises.__getitem__)
        promise, t = promises[i]
        if not promise > most + _GAIN * abs(most):
            break
        tried[i][t] = harms[i](t)
    best = max(range(len(tried)), key=lambda i: max(tried[i].values()))
    return best, max(sorted(tried[best]), key=tried[best].__getitem__)


def _check(evaluations: int, max_factor: float, damage: str) -> None:
    if evaluations < _EVALUATIONS:
        raise SettingError(
            f"adaptive needs at least {_EVALUATIONS} evaluations of the rule, four per line, got {evaluations}."
        )
    if not 0 < max_factor < inf:
        raise SettingError(f"adaptive needs a finite max_factor > 0, got {max_factor}.")
    check_choice("adaptive's damage", damage, get_args(Damage))


class Adaptive(Adversary):
    """Search for the most damaging candidate against the run's rule, each round anew; see `adaptive`."""

    def __init__(self, evaluations: int = 128, max_factor: float = 1e7, damage: Damage = "distance"):
        _check(evaluations, max_factor, damage)
        self.evaluations = evaluations
        self.max_factor = max_factor
        self.damage = damage

    def check(self, n_honest: int, n_byzantine: int, n_classes: int) -> None:
        """Check that there is a spread; see the base class."""
        check_spread("adaptive", n_honest)

    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        """Forge one round's updates; see the base class."""
        return adaptive(
            honest.rows,
            n_byzantine,
            context.answer or context.rule,
            honest.data_weights,
            self.evaluations,
            self.max_factor,
            self.damage,
        )
