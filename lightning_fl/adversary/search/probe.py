"""Ask a rule what it would do with forged updates: the part that searching attacks share.

Every candidate is a combination of a few directions (the honest mean, their standard deviation, ...), so that its inner
products follow from those of the honest rows and these directions, and the sorted columns of all rows from those of the
honest ones (`candidates.Candidates`).  A weighting that is asked about a candidate never reads the d
columns, not even for its answer, whose distance from the mean follows from inner products, too.
"""

from collections.abc import Callable, Sequence
from math import inf, isclose, isfinite
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from lightning_fl.adversary.search.candidates import Candidates
from lightning_fl.adversary.search.estimate import Sample, SampledCandidates, sample_columns
from lightning_fl.updates.combinations import inner
from lightning_fl.updates.updates import Combination, Updates

# Columns in which a rule that works column by column is asked for an estimate.
_COLUMNS = 1024

Damage = Literal["distance", "ascent"]
Rule = Callable[[Updates], Float[Tensor, " d"] | Combination]


class Probe:
    """A round's honest rows and the rule, to be asked about b copies of one forged row.

    Args:
        honest: One honest update per row.
        n_byzantine: b.
        rule: What the server makes of n updates, honest ones first.
        directions: k vectors that candidates are combined from.
        weights: Data weights of the honest clients; a Byzantine one counts as the average honest one.  None: equal.

    >>> probe = Probe(torch.tensor([[1.0], [3.0]]), 1, lambda updates: updates.rows.mean(0), torch.tensor([[2.0]]))
    >>> probe.forged([-2.0]), probe.ask([-2.0]), probe.harm([-2.0])
    (tensor([-4.]), tensor([0.]), 2.0)
    """

    def __init__(
        self,
        honest: Float[Tensor, "h d"],
        n_byzantine: int,
        rule: Rule,
        directions: Float[Tensor, "k d"],
        weights: Float[Tensor, " h"] | None = None,
    ):
        weighted = Updates(honest, weights)
        self.mean = weighted.combine(weighted.data_weights)
        """The mean by data weights, which the server wants."""
        self.rule = rule
        self._weights = F.pad(weighted.data_weights, (0, n_byzantine))
        shares = F.pad(weighted.data_weights, (0, n_byzantine), value=1 / len(honest))
        self._candidates = Candidates(weighted, directions, n_byzantine, shares)
        self._sampled: SampledCandidates | None = None  # made when the first estimate is wanted
        self._samples = True
        self.estimated = False
        """Whether some estimate was not exact."""
        self.guessed = False
        """Whether some estimate may have misjudged which rows the rule takes."""

    def forged(self, coefficients: Sequence[float]) -> Float[Tensor, " d"]:
        """Combine the directions."""
        return self._candidates.by(coefficients).row

    def candidate(self, coefficients: Sequence[float]) -> Updates:
        """Put b copies of the combined row behind the honest ones; its rows hold until those of the next are asked."""
        return self._candidates.by(coefficients)

    def ask(self, coefficients: Sequence[float]) -> Float[Tensor, " d"]:
        """Ask the rule about b copies of the combined row."""
        answer = self.rule(self.candidate(coefficients))
        return answer.vector if isinstance(answer, Combination) else answer

    def harm(self, coefficients: Sequence[float], damage: Damage = "distance", once: bool = False) -> float:
        """Measure what b copies of the combined row would do.

        Args:
            coefficients: One number per direction.
            once: Whether few such questions follow; see `Candidates.by`.
            damage: With the weighted mean m of the honest updates and the rule's answer r, "distance": ||r - m||;
                "ascent": -<r, m>, how much a small step against r raises the mean loss.

        Returns:
            The damage; infinite where the answer is not finite.
        """
        answer = self.rule(self._candidates.by(coefficients, once))
        if isinstance(answer, Combination):
            if self._candidates.knows(answer.updates):
                return self._harm_of(answer, damage)
            answer = answer.vector
        if damage == "ascent":
            harm = -(answer.double() @ self.mean.double()).item()
        else:
            harm = torch.linalg.vector_norm(answer - self.mean, dtype=torch.float64).item()
        return harm if isfinite(harm) or answer.isfinite().all() else inf

    def estimate(self, coefficients: Sequence[float], damage: Damage = "distance") -> float:
        """Estimate `harm`; see `estimate` for what is exact and what comes from a sample of the columns.

        Where a rule can make nothing of a sample, it is no longer asked about one.
        """
        if self._samples and self._sampled is None:
            sample = sample_columns(self._candidates.vectors, _COLUMNS)
            self._samples = sample is not None
            self._sampled = None if sample is None else SampledCandidates(self._candidates, sample)
        if not self._samples or self._sampled is None:
            return self.harm(coefficients, damage)
        answer = self.rule(self._sampled.by(coefficients))
        if isinstance(answer, Combination) and self._candidates.knows(answer.updates):
            harm = self._harm_of(answer, damage)
        else:
            vector = answer.vector if isinstance(answer, Combination) else answer
            harm = self._harm_in(self._sampled.sample, vector, damage)
            self.estimated = True
            if not isfinite(harm):
                harm = self.harm(coefficients, damage)
                self._samples = not isfinite(harm)  # only the sample's NaN explains it
        self.estimated |= self._sampled.estimates
        self.guessed |= self._sampled.guesses
        return harm

    def _harm_in(self, sample: Sample, answer: Tensor, damage: Damage) -> float:
        """From some columns."""
        mean = self.mean[sample.index].double()
        away = answer[sample.index].double() - mean
        if damage == "ascent":  # -<r, m> = -<r - m, m> - ||m||^2, of which only the first is estimated
            square = torch.linalg.vector_norm(self.mean, dtype=torch.float64).square()
            return (-((sample.stands_for * away) @ mean) - square).item()
        return (sample.stands_for @ away.square()).sqrt().item()

    def _harm_of(self, answer: Combination, damage: Damage) -> float:
        """From inner products alone."""
        given = answer.coefficients
        wanted = F.pad(self._weights, (0, len(given) - len(self._weights)))
        if damage == "ascent":
            harm = -inner(answer.centred, given, wanted).item()
        else:
            harm = inner(answer.centred, given - wanted, given - wanted).clamp(min=0).sqrt().item()
        return harm if abs(harm) <= torch.finfo(self.mean.dtype).max else inf


def same(value: float, other: float) -> bool:
    """Whether two values differ by rounding at most, as those of a plateau do."""
    return isclose(value, other, rel_tol=1e-9)


def climb(value: Callable[[float], float], evaluations: int, start: float, step: float, ratio: float) -> float:
    """Walk forward from ``start`` with growing steps while the value grows, then with shrinking ones.

    Args:
        value: What to maximise.
        evaluations: How often to ask for it, at least 1, the start included.
        start: The first point.
        step: First step; doubled after each success until the first failure, then multiplied by ``ratio`` after each
            try.
        ratio: The factor, in (0, 1).

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
        better = found > most and not same(found, most)
        if better:
            best, most = proposed, found
        grows = grows and better
        step *= 2 if grows else ratio
    return best
