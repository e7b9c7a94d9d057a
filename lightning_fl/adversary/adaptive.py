"""The strongest of inner-product manipulation and LIE against the rule at hand, found by asking the rule.

Cong Xie, Oluwasanmi Koyejo, Indranil Gupta. Fall of Empires. UAI 2019. arXiv:1903.03936.
Gilad Baruch, Moran Baruch, Yoav Goldberg. A Little Is Enough. NeurIPS 2019. arXiv:1902.06156.

Every candidate is a combination of honest mean and standard deviation, so that its inner products follow from one Gram
matrix a round: a weighting that is asked about a candidate reads d for its weighted sum only.
"""

from collections.abc import Callable
from functools import cached_property, partial
from itertools import pairwise
from math import inf, sqrt
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64
from torch import Tensor

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.adversary.lie import mean_and_std
from lightning_fl.errors import SettingError, check_choice
from lightning_fl.updates import Updates, gram_matrix

Damage = Literal["distance", "ascent"]
Rule = Callable[[Updates], Float[Tensor, " d"]]

# A line of candidates a mean + s std: from its factor gamma to (a, s).
_Line = Callable[[float], tuple[float, float]]
_LINES: tuple[_Line, ...] = (
    lambda factor: (-factor, 0.0),  # IPM
    lambda factor: (1.0, factor),  # LIE
    lambda factor: (1.0, -factor),  # LIE, the other way
)


def adaptive(
    honest: Float[Tensor, "h d"],
    n_byzantine: int,
    rule: Rule,
    weights: Float[Tensor, " h"] | None = None,
    evaluations: int = 48,
    max_factor: float = 10.0,
    damage: Damage = "distance",
) -> Float[Tensor, "b d"]:
    """Send the most damaging of -gamma mean, mean + gamma std and mean - gamma std against a rule.

    A robust rule trusts a candidate up to some factor and then drops it: harm rises to a cliff with a plateau behind
    it.  So on each line two thirds of the evaluations go to a geometric grid of factors, and the others, one by one, to
    the middle of the wider gap beside the best factor so far.

    Args:
        honest: One honest update a row, at least 2.
        n_byzantine: How many copies to send.
        rule: What the server makes of n updates, honest ones first.  A result that is not finite is infinite damage.
        weights: Data weights of the honest clients; a Byzantine one counts as the average honest one.  None: equal.
        evaluations: How often to ask the rule in all, at least 9; a third a line, rounded down.
        max_factor: Largest gamma, above 0; the smallest is a hundredth of it.
        damage: What to maximise, with the weighted mean m of the honest updates and the rule's answer r.
            "distance": ||r - m||.  "ascent": -<r, m>, how much a small step against r raises the mean loss.

    Returns:
        The forged updates, one vector expanded to n_byzantine rows.

    Raises:
        SettingError: If there are fewer than 2 honest updates, or a setting is out of range.

    Averaging has no defence: the largest factor wins, -10 times the mean 2.

    >>> adaptive(torch.tensor([[1.0], [3.0]]), n_byzantine=1, rule=lambda updates: updates.rows.mean(0))
    tensor([[-20.]])
    """
    _check(evaluations, max_factor, damage)
    weighted = Updates(honest, weights)
    mean = weighted.combine(weighted.data_weights)
    _, std = mean_and_std(honest, "adaptive")
    basis = _Basis(honest, torch.stack([mean, std]))
    rows = torch.cat([honest, honest.new_empty(n_byzantine, honest.shape[1])])
    data_weights = F.pad(weighted.data_weights, (0, n_byzantine), value=1 / len(honest))

    def harm(line: _Line, factor: float) -> float:
        a, s = line(factor)
        rows[len(honest) :] = a * mean + s * std
        answer = rule(_Candidate(rows, data_weights, basis, a, s))
        if not answer.isfinite().all():
            return inf
        if damage == "ascent":
            return -(answer.double() @ mean.double()).item()
        return torch.linalg.vector_norm(answer - mean, dtype=torch.float64).item()

    found = [_line_search(partial(harm, line), evaluations // 3, max_factor) for line in _LINES]
    best = max(range(len(found)), key=lambda i: found[i][0])
    a, s = _LINES[best](found[best][1])
    return (a * mean + s * std).expand(n_byzantine, -1)


class _Basis:
    """Inner products of h honest rows, their mean and std and rows that the server adds, each read once."""

    def __init__(self, honest: Tensor, mean_std: Tensor):
        self.h = len(honest)
        self.blocks = honest, mean_std
        self.known: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def gram(self, extra: Tensor) -> Tensor:
        key = extra.data_ptr(), len(extra)
        if key not in self.known:
            if len(self.known) == 4:
                self.known.clear()
            # Rows are told apart by where they lie; kept here, they lie there until the end.
            self.known[key] = extra, gram_matrix(*self.blocks, extra.to(self.blocks[0].device))
        return self.known[key][1]


class _Candidate(Updates):
    """h honest rows and b copies of a mean + s std, whose inner products follow from the basis'."""

    def __init__(self, rows: Tensor, data_weights: Tensor, basis: _Basis, a: float, s: float):
        super().__init__(rows, data_weights)
        self.basis, self.a, self.s = basis, a, s

    @cached_property
    def gram(self) -> Float64[Tensor, "n n"]:
        return self.gram_with(self.rows[:0])

    def gram_with(self, extra: Float[Tensor, "k d"]) -> Float64[Tensor, "m m"]:
        gram, h = self.basis.gram(extra).clone(), self.basis.h
        gram[h] = self.a * gram[h] + self.s * gram[h + 1]
        gram[:, h] = self.a * gram[:, h] + self.s * gram[:, h + 1]
        order = torch.tensor([*range(h), *[h] * (self.n - h), *range(h + 2, len(gram))], device=gram.device)
        gram = gram[order][:, order]
        self.gram = gram[: self.n, : self.n]
        return gram


def _line_search(harm: Callable[[float], float], evaluations: int, max_factor: float) -> tuple[float, float]:
    """Find the most harm on a line, and the smallest factor tried that does it."""
    grid = 2 * evaluations // 3
    tried = {factor: harm(factor) for factor in (max_factor * 100 ** (k / (grid - 1) - 1) for k in range(grid))}
    for _ in range(evaluations - grid):
        factors = sorted(tried)
        i = factors.index(max(factors, key=tried.__getitem__))
        low, high = max(pairwise(factors[max(i - 1, 0) : i + 2]), key=lambda gap: gap[1] / gap[0])
        middle = sqrt(low * high)
        tried[middle] = harm(middle)
    best = max(sorted(tried), key=tried.__getitem__)
    return tried[best], best


def _check(evaluations: int, max_factor: float, damage: str) -> None:
    if evaluations < 9:
        raise SettingError(f"adaptive needs at least 9 evaluations of the rule, got {evaluations}.")
    if not 0 < max_factor < inf:
        raise SettingError(f"adaptive needs a finite max_factor > 0, got {max_factor}.")
    check_choice("adaptive's damage", damage, get_args(Damage))


class Adaptive(Adversary):
    """Search for the most damaging factor against the run's rule, each round anew; see `adaptive`."""

    def __init__(self, evaluations: int, max_factor: float, damage: Damage):
        _check(evaluations, max_factor, damage)
        self.evaluations = evaluations
        self.max_factor = max_factor
        self.damage = damage

    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        """Forge one round's updates; see the base class."""
        return adaptive(
            honest.rows,
            n_byzantine,
            context.rule,
            honest.data_weights,
            self.evaluations,
            self.max_factor,
            self.damage,
        )
