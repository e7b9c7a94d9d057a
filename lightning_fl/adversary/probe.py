"""Ask a rule what it would make of forged updates: the part that searching attacks share.

Every candidate is a combination of a few directions (the honest mean, their standard deviation, ...), so that its inner
products follow from one Gram matrix of the honest rows and these directions.  A weighting that is asked about a
candidate reads the d columns for its weighted sum only.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from math import inf
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64
from torch import Tensor

from lightning_fl.updates import Updates, gram_matrix

Damage = Literal["distance", "ascent"]
Rule = Callable[[Updates], Float[Tensor, " d"]]


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
        self.directions = directions
        self._h = len(honest)
        self._rows = torch.cat([honest, honest.new_empty(n_byzantine, honest.shape[1])])
        self._data_weights = F.pad(weighted.data_weights, (0, n_byzantine), value=1 / self._h)
        self._basis = _Basis(honest, directions)

    def forged(self, coefficients: Sequence[float]) -> Float[Tensor, " d"]:
        """Combine the directions."""
        row = torch.zeros_like(self.mean)
        for coefficient, direction in zip(coefficients, self.directions, strict=True):
            if coefficient:
                row.add_(direction, alpha=coefficient)
        return row

    def candidate(self, coefficients: Sequence[float]) -> Updates:
        """Put b copies of the combined row behind the honest ones; valid until the next call."""
        self._rows[self._h :] = self.forged(coefficients)
        return _Candidate(self._rows, self._data_weights, self._basis, coefficients)

    def ask(self, coefficients: Sequence[float]) -> Float[Tensor, " d"]:
        """Ask the rule about b copies of the combined row."""
        return self.rule(self.candidate(coefficients))

    def harm(self, coefficients: Sequence[float], damage: Damage = "distance") -> float:
        """Measure what b copies of the combined row would do.

        Args:
            coefficients: One number per direction.
            damage: With the weighted mean m of the honest updates and the rule's answer r, "distance": ||r - m||;
                "ascent": -<r, m>, how much a small step against r raises the mean loss.

        Returns:
            The damage; infinite where the answer is not finite.
        """
        answer = self.ask(coefficients)
        if not answer.isfinite().all():
            return inf
        if damage == "ascent":
            return -(answer.double() @ self.mean.double()).item()
        return torch.linalg.vector_norm(answer - self.mean, dtype=torch.float64).item()


class _Basis:
    """Inner products of honest rows, directions and rows that the server adds, each read once."""

    def __init__(self, honest: Tensor, directions: Tensor):
        self.h, self.k = len(honest), len(directions)
        self.blocks = honest, directions
        self.known: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def gram(self, extra: Tensor) -> Tensor:
        key = extra.data_ptr(), len(extra)
        if key not in self.known:
            if len(self.known) == 4:
                self.known.clear()
            # Keyed by address; keeping the tensor alive keeps the address from being reused.
            self.known[key] = extra, gram_matrix(*self.blocks, extra.to(self.blocks[0].device))
        return self.known[key][1]


class _Candidate(Updates):
    """h honest rows and b copies of a combination of directions, whose inner products follow from the basis'."""

    def __init__(self, rows: Tensor, data_weights: Tensor, basis: _Basis, coefficients: Sequence[float]):
        super().__init__(rows, data_weights)
        self.basis, self.coefficients = basis, coefficients

    @cached_property
    def gram(self) -> Float64[Tensor, "n n"]:
        return self.gram_with(self.rows[:0])

    def gram_with(self, extra: Float[Tensor, "k d"]) -> Float64[Tensor, "m m"]:
        basis, h, k = self.basis.gram(extra), self.basis.h, self.basis.k
        coefficients = basis.new_tensor(self.coefficients)
        products = coefficients @ basis[h : h + k]
        gram = torch.cat([basis[:h], products[None], basis[h + k :]])
        column = torch.cat([products[:h], (products[h : h + k] @ coefficients)[None], products[h + k :]])
        gram = torch.cat([gram[:, :h], column[:, None], gram[:, h + k :]], dim=1)
        order = torch.tensor([*range(h), *[h] * (self.n - h), *range(h + 1, len(gram))], device=gram.device)
        gram = gram[order][:, order]
        self.gram = gram[: self.n, : self.n]
        return gram
