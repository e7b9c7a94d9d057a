"""Ask a rule what it would make of forged updates: the part that searching attacks share.

Every candidate is a combination of a few directions (the honest mean, their standard deviation, ...), so that its inner
products follow from those of the honest rows and these directions (`Updates.mixed`).  A weighting that is asked about a
candidate reads the d columns for its weighted sum only.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from lightning_fl.updates import Updates

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
        h, k = len(honest), len(directions)
        rows = torch.cat([directions, honest, honest.new_empty(n_byzantine, honest.shape[1])])
        self._directions, self._sent, self._forged = rows[:k], rows[k:], rows[k + h :]
        self._source = Updates(rows[: k + h])
        self._copies = F.pad(torch.eye(h, dtype=torch.float64, device=rows.device), (k, 0, 0, n_byzantine))
        self._data_weights = F.pad(weighted.data_weights, (0, n_byzantine), value=1 / h)

    def forged(self, coefficients: Sequence[float]) -> Float[Tensor, " d"]:
        """Combine the directions."""
        row = torch.zeros_like(self.mean)
        for coefficient, direction in zip(coefficients, self._directions, strict=True):
            if coefficient:
                row.add_(direction, alpha=coefficient)
        return row

    def candidate(self, coefficients: Sequence[float]) -> Updates:
        """Put b copies of the combined row behind the honest ones; valid until the next call."""
        self._forged[:] = self.forged(coefficients)
        h, k = self._source.n - len(coefficients), len(coefficients)
        matrix = self._copies.clone()
        matrix[h:, :k] = matrix.new_tensor(coefficients)
        candidate = self._source.mixed(matrix, self._data_weights)
        candidate.rows = self._sent  # as mixed, without a matrix product
        return candidate

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
