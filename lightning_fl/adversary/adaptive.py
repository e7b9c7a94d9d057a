"""The strongest of inner-product manipulation, LIE and the directions of Min-Max against the rule at hand.

Cong Xie, Oluwasanmi Koyejo, Indranil Gupta. Fall of Empires. UAI 2019. arXiv:1903.03936.
Gilad Baruch, Moran Baruch, Yoav Goldberg. A Little Is Enough. NeurIPS 2019. arXiv:1902.06156.
El Mahdi El Mhamdi, Rachid Guerraoui, Sebastien Rouault. The Hidden Vulnerability of Distributed Learning in Byzantium.
ICML 2018. arXiv:1802.07927.
Virat Shejwalkar, Amir Houmansadr. Manipulating the Byzantine. NDSS 2021.

Every candidate is a combination of four vectors, so that a weighting that is asked about it never reads d, and a rule
that works column by column reads some of the columns; see `lightning_fl.adversary.search.probe`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import inf, sqrt
from typing import Annotated, Any

import torch
from annotated_types import Ge
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.adversary.search.probe import Damage, Probe, climb, same
from lightning_fl.ranges import PositiveFloat
from lightning_fl.updates.updates import Updates

_KNEE, _FIRST = 10.0, (0.03, 0.1, 0.3, 1.0)  # factor, and parts of it that are tried on every line first
_REACH = 10.0  # how many times farther the search looks at once
_CONFIRMED = 4  # estimates to ask exactly about at most
_CLIMBED, _STEP = 4, 0.02  # steps from there, where estimates may have misplaced a cliff, and how long the first is
_WALK = (20, 0.0, 10.0, 0.8)  # what opt_ipm and opt_alie try: number, start, first step, ratio; see `climb`
_EVALUATIONS = 8 * (len(_FIRST) + 1) + 2 * _WALK[0] + _CONFIRMED + _CLIMBED
_LEVEL = 0.01  # relative difference of harms from which something is expected between them
_GAIN = 0.005  # smallest relative gain worth a question
_CLOSE = 1.01  # how many times farther the neighbours of the best place may be
_NEAR = 0.1  # how much less than the most harm a gap with a cliff may promise
_CLIFF = 1.05  # how many times farther the foot of a cliff is than its top, once it is found
_DOUBT = 0.02  # relative error of estimates that is usual
_RIGHT = 0.1  # relative error of an estimate that has lost precision, but nothing else

# From a place t on a line through the honest mean, which is at t = 0, to coefficients of the four vectors.
_Line = Callable[[float], Sequence[float]]
_Ask = Callable[[Sequence[float], Damage], float]
_Harm = Callable[[float], float]
_Tried = list[dict[float, float]]  # the harm at each place tried, line by line


class Adaptive(Adversary):
    """Send what harms a rule most on eight lines from the honest mean m.

    The lines are m + gamma p and m - gamma p for four directions p, each as long as the standard deviation: std itself
    (LIE), the direction of m (of which -m is IPM), the signs of m, and the coordinate in which honest updates differ
    most.

    A robust rule trusts a candidate up to some factor and then drops it: harm rises to a cliff with a plateau behind
    it.  So the search begins with a few factors on each line, and with all that opt_ipm and opt_alie would try (of
    clients whose data weigh the same: the lines begin at the weighted mean, those attacks' at the plain one).  Then
    it asks, one by one, about the middle of the gap that promises most on any line: the harm at its lower end,
    continued along the last slope to its upper end, or less where the harm has begun to bend.  Where no gap promises
    0.5 % more than what is found, nor a cliff nearly as much, it looks around the best factor, and ends where neither
    neighbour is more than 1 % away.

    For the distance, a rule that works column by column is asked about some of the columns (`search.estimate`),
    then about all of them with the few candidates that seem the best.  Where none of these does what the sample made
    believe, the search begins anew with all columns.

    Args:
        evaluations: How often to ask the rule at most, at least 88; where a search begins anew, as often again.  It
            ends earlier where no gap promises anything, and more would find no more then.
        max_factor: Largest gamma and largest factor of IPM; the smallest gamma of the first ones is 0.3, or
            3 % of a max_factor below 10.
        damage: What to maximise, with the weighted mean m of the honest updates and the rule's answer r.
            "distance": ||r - m||.  "ascent": -<r, m>, how much a small step against r raises the mean loss.  An answer
            that is not finite is infinite damage.
        window: See `Adversary`.

    Averaging has no defence: the largest factor wins, -10 times the mean 2.

    >>> from lightning_fl.aggregator.average import Average
    >>> Adaptive(max_factor=10.0)(torch.tensor([[1.0], [3.0]]), n_byzantine=1, rule=Average())
    tensor([[-20.]])
    """

    least_honest = 2
    knows = "rule"
    varies_with = ("weights",)
    searches = True

    def __init__(
        self,
        evaluations: Annotated[int, Ge(_EVALUATIONS)] = 160,
        max_factor: PositiveFloat = 1e7,
        damage: Damage = "distance",
        **window: Any,
    ):
        super().__init__(**window)
        self.evaluations = evaluations
        self.max_factor = max_factor
        self.damage: Damage = damage

    @override
    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        rows, weights = honest.rows, honest.data_weights
        weighted, max_factor, damage = Updates(rows, weights), self.max_factor, self.damage
        mean = weighted.combine(weighted.data_weights)
        _, std = Updates(rows).mean_and_std
        length, deviation = (torch.linalg.vector_norm(v, dtype=torch.float64).item() for v in (mean, std))
        sign, coordinate = mean.sign(), torch.zeros_like(std)
        coordinate.index_fill_(0, std.argmax(), 1.0)
        sign_length = torch.linalg.vector_norm(sign, dtype=torch.float64).item()
        probe = Probe(rows, n_byzantine, context.answer, torch.stack([mean, std, sign, coordinate]), weights)
        unit = deviation / length if length else 0.0
        even = deviation / sign_length if sign_length else 0.0
        paces = [(1, 1.0), (1, -1.0), (0, unit), (0, -1.0), (2, even), (2, -even), (3, deviation), (3, -deviation)]
        lines = [_along(direction, pace) for direction, pace in paces]
        knee = min(_KNEE, max_factor)
        near = sorted({knee * part for part in _FIRST})
        starts = [_Start(near, max_factor)] * len(lines)
        starts[0] = _Start(near, max_factor, walk_from=0.0)
        # -t m is at 1 + t: in IPM's own scale, so that its factor 0 is a row of exact zeros.
        starts[3] = _Start([t * unit for t in near], max(max_factor * unit, 1 + max_factor), walk_from=1.0)

        def search(ask: _Ask) -> _Tried:
            harms = [partial(_harm, ask, line, damage) for line in lines]
            return _search(harms, self.evaluations - _CONFIRMED - _CLIMBED, starts)

        # A sum of products has large terms of both signs: a sample says less about it.
        tried = search(probe.estimate if damage == "distance" else probe.harm)
        best = _best(tried)
        if probe.estimated:
            exactly = [partial(_harm, partial(probe.harm, once=True), line, damage) for line in lines]
            best = _confirmed(exactly, tried, _CLIMBED if probe.guessed else 0) or _best(search(probe.harm))
        line, t = best
        return probe.forged(lines[line](t)).expand(n_byzantine, -1)


@dataclass(frozen=True)
class _Start:
    """Where the search begins on a line."""

    near: Sequence[float]
    """The first factors."""
    largest: float
    """Where the line ends."""
    walk_from: float | None = None
    """Where opt_* would begin, if the line is theirs."""

    def tried(self, harm: _Harm, at_mean: float) -> dict[float, float]:
        """Ask about these places; stop at the near ones once the harm levels off."""
        line = {0.0: at_mean}

        def ask(t: float) -> float:
            if t > self.largest:
                return -inf
            if t not in line:
                line[t] = harm(t)
            return line[t]

        ask(self.largest)
        for k, t in enumerate(self.near):
            if k > 1 and _change(ask(self.near[k - 1]), ask(self.largest)) <= _LEVEL:
                break
            ask(t)
        if self.walk_from is not None:
            origin = self.walk_from
            climb(lambda t: ask(origin + t), *_WALK)
        return line


def _harm(ask: _Ask, line: _Line, damage: Damage, t: float) -> float:
    return ask(line(t), damage)


def _along(direction: int, pace: float) -> _Line:
    def line(t: float) -> Sequence[float]:
        coefficients = [1.0, 0.0, 0.0, 0.0]
        coefficients[direction] += pace * t
        return coefficients

    return line


def _promises(line: dict[float, float]) -> Iterator[tuple[float, float, bool]]:
    """For each gap of a line, give the harm that it promises, its middle, and whether there is a cliff to be placed."""
    places = sorted(line)
    harms = [line[t] for t in places]
    slopes = [(b - a) / (t1 - t0) for (t0, t1), (a, b) in zip(pairwise(places), pairwise(harms), strict=True)]
    for k in range(1, len(slopes)):
        if _level(harms, k):
            continue
        ahead = min(places[k + 1], _REACH * places[k])
        slope = slopes[k - 1]
        if k > 1 and slopes[k - 2] > slope > 0:  # it bends, and will go on so
            slope *= slope / slopes[k - 2]
        cliff = harms[k + 1] < harms[k] and ahead > _CLIFF * places[k]
        yield harms[k] + slope * (ahead - places[k]), sqrt(places[k] * ahead), cliff


def _change(harm: float, other: float) -> float:
    """Relative difference."""
    return 0.0 if harm == other else abs(other - harm) / abs(harm) if harm else inf


def _level(harms: Sequence[float], k: int) -> bool:
    """Whether nothing is expected between places k and k + 1, since the harm hardly changes there, nor beyond."""
    if harms[k] == inf:
        return True
    changes = [_change(*pair) for pair in pairwise(harms[k : k + 3])]
    return changes[0] <= _LEVEL and (len(changes) < 2 or changes[0] <= _LEVEL / 10 or changes[1] <= _LEVEL)


def _beside(line: dict[float, float]) -> float | None:
    """Choose a place between the best one on a line and a neighbour; None where these are close or as harmful."""
    places = sorted(line)
    harms = [line[t] for t in places]
    best = places[harms.index(max(harms))]
    if best and best == places[1]:
        return best / sqrt(_REACH)
    for k in range(1, len(places) - 1):
        low, high = places[k], places[k + 1]
        if best in (low, high) and _CLOSE < high / low <= _REACH and _change(harms[k], harms[k + 1]) > _LEVEL / 10:
            return sqrt(low * high)
    return None


def _next(tried: _Tried) -> tuple[int, float] | None:
    """Choose the line and the place to ask about; None where nothing is worth it."""
    best, _ = _best(tried)
    most = max(tried[best].values())
    promises = [(promise, i, place, cliff) for i, line in enumerate(tried) for promise, place, cliff in _promises(line)]
    for promise, i, place, cliff in sorted(promises, reverse=True):
        if promise > most + _GAIN * abs(most) or (cliff and promise > most - _NEAR * abs(most)):
            return i, place
    beside = _beside(tried[best])
    return None if beside is None else (best, beside)


def _search(harms: Sequence[_Harm], evaluations: int, starts: Sequence[_Start]) -> _Tried:
    """Ask about the starts, then about what promises most, on lines that meet at t = 0, then beside the best place."""
    at_mean = harms[0](0.0)
    tried = [start.tried(harm, at_mean) for harm, start in zip(harms, starts, strict=True)]
    for _ in range(evaluations - 1 - sum(len(line) - 1 for line in tried)):
        found = _next(tried)
        if found is None:
            break
        i, place = found
        tried[i][place] = harms[i](place)
    return tried


def _best(tried: _Tried) -> tuple[int, float]:
    """Find the most harm: the first line, and the least t tried on it, that do it."""
    return _first_of_best({(i, t): harm for i, line in enumerate(tried) for t, harm in line.items()})


def _first_of_best(harms: Mapping[tuple[int, float], float]) -> tuple[int, float]:
    """Of places that do the most harm, by which rounding alone may differ, the first."""
    most = max(harms.values())
    return min(place for place, harm in harms.items() if same(harm, most))


def _confirmed(harms: Sequence[_Harm], estimates: _Tried, climbed: int) -> tuple[int, float] | None:
    """Ask exactly about the largest estimates, in their order, until the others are clearly lower.

    An estimate that is nearly right speaks for all of its line.

    Args:
        harms: The harm at each place, for each line.
        estimates: What was tried.
        climbed: How many places farther out on the best line to ask about, where a cliff may be beyond its estimate.

    Returns:
        Line and place of the most harm; None where no estimate was nearly right.
    """
    found: dict[tuple[int, float], float] = {}
    right: set[int] = set()
    by_harm = sorted(((harm, -i, -t) for i, line in enumerate(estimates) for t, harm in line.items()), reverse=True)
    for estimate, i, t in ((harm, -i, -t) for harm, i, t in by_harm):
        most = max(found.values(), default=-inf)
        if len(found) == _CONFIRMED or (right and estimate < most - _DOUBT * abs(most)):
            break
        if i not in right:
            found[i, t] = harm = harms[i](t)
            if abs(harm - estimate) <= _RIGHT * abs(estimate):
                right.add(i)
    if not right:
        return None
    i, t = _first_of_best(found)
    farther = climb(lambda place: found[i, t] if place == t else harms[i](place), 1 + climbed, t, _STEP * t, 0.5)
    return i, farther
