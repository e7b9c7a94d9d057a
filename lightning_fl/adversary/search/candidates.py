"""The rows of a round, followed by copies of one vector of the attack's, for a search that asks about many vectors."""

from collections.abc import Callable, Sequence
from functools import cache, cached_property, partial

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from lightning_fl.updates.combinations import gram_with_row, with_row
from lightning_fl.updates.ordered import Ordered, ordered
from lightning_fl.updates.products import Centred
from lightning_fl.updates.rows import as_shares, row_norms
from lightning_fl.updates.updates import Updates

# Different server rows, and different functions of rows, for which the answers are kept.
_SEEN = 4


class _Beside:
    """Inner products between rows, vectors and further rows, computed when first needed."""

    def __init__(self, rows: Updates, vectors: Tensor, extra: Tensor):
        self._rows, self.n_vectors, self.n_extra = rows, len(vectors), len(extra)
        self._others = torch.cat([vectors, extra.to(vectors)])

    def holds(self, extra: Tensor) -> bool:
        """Whether these are the further rows."""
        return torch.equal(self._others[self.n_vectors :], extra.to(self._others))

    @cached_property
    def gram(self) -> Float64[Tensor, "m m"]:
        return self._rows.gram_with(self._others)

    @cached_property
    def centred(self) -> Centred:
        return self._rows.centred_with(self._others)


class Candidates:
    """Rows x_i that are followed by copies of y = sum_j c_j v_j, again and again with other c.

    For a search that asks a rule about many y: what concerns the rows and the vectors v_j alone is computed once, and
    all inner products and sorted columns follow from that.

    Args:
        rows: x.
        vectors: v.
        copies: How many rows are y.
        data_weights: Data weights of the rows and the copies.

    >>> candidates = Candidates(Updates(torch.tensor([[3.0]])), torch.tensor([[1.0], [5.0]]), 2, torch.ones(3))
    >>> candidates.by([2.0, 0.0]).rows.flatten(), candidates.by([0.0, 1.0]).gram[0]
    (tensor([3., 2., 2.]), tensor([ 9., 15., 15.], dtype=torch.float64))
    """

    def __init__(
        self, rows: Updates, vectors: Float[Tensor, "k d"], copies: int, data_weights: Float[Tensor, " n"]
    ) -> None:
        self.rows, self.vectors, self.copies = rows, vectors, copies
        self.data_weights = as_shares(data_weights, rows.n + copies)
        self.norms = cache(rows.norms)
        self.ordered = cache(partial(ordered, rows))
        self._asked: list[_Beside] = []
        self._found: list[tuple[Callable[[Tensor], Tensor], Tensor]] = []

    def by(self, coefficients: Sequence[float], once: bool = False) -> "_Candidate":
        """Let the copies be y with these c; the rows of what is returned hold until those of the next one are asked.

        Args:
            coefficients: c.
            once: Prepare nothing for further y: sort all columns, which takes a few times as long as one more y then.
        """
        given = {j: c for j, c in enumerate(coefficients) if c}  # 0 * inf is NaN
        # A vector that is nothing here, in columns that a rule has drawn, takes no part in rounding.
        return _Candidate(self, {j: c for j, c in given.items() if self.there[j]} or given, once)

    @cached_property
    def there(self) -> list[bool]:
        """Which vectors are not zero."""
        return self.vectors.any(1).tolist()

    def knows(self, updates: Updates) -> bool:
        """Whether the updates are its rows and copies."""
        return isinstance(updates, _Candidate) and updates.candidates is self

    def beside(self, extra: Float[Tensor, "k d"] | None) -> "_Beside":
        """Find what was asked about the same further rows (of the server) before; None: about any or no such rows."""
        for known in reversed(self._asked):
            if extra is None or known.holds(extra):
                return known
        known = _Beside(self.rows, self.vectors, self.vectors[:0] if extra is None else extra)
        self._asked = [*self._asked[1 - _SEEN :], known]
        return known

    def of_rows(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """What a function makes of each of the rows, remembered."""
        for known, found in self._found:
            if known == function:
                return found
        found = function(self.rows.rows)
        self._found = [*self._found[1 - _SEEN :], (function, found)]
        return found

    @cached_property
    def products(self) -> Float64[Tensor, "k k"]:
        """Inner products of the vectors."""
        return Updates(self.vectors).gram

    @cached_property
    def sent(self) -> Float[Tensor, "n d"]:
        """The rows and room for the copies."""
        return torch.cat([self.rows.rows, self.vectors.new_empty(self.copies, self.vectors.shape[1])])


class _Candidate(Updates):
    """The rows of others followed by copies of one more; see `Candidates`."""

    def __init__(self, candidates: Candidates, coefficients: dict[int, float], once: bool = False):
        self.candidates, self.ids, self.data_weights, self.once = candidates, None, candidates.data_weights, once
        self.held, self.layout = candidates.rows.held, candidates.rows.layout
        self.h = candidates.rows.n
        self.n, self.d = self.h + candidates.copies, candidates.rows.d
        self.of_vectors = coefficients
        self.parts = torch.tensor(list(coefficients), dtype=torch.int64, device=self.data_weights.device)
        self.coefficients = self.data_weights.new_tensor(list(coefficients.values()))

    @cached_property
    def row(self) -> Float[Tensor, " d"]:
        """The vector y."""
        row = torch.zeros_like(self.candidates.vectors[0])
        for j, coefficient in self.of_vectors.items():
            row.add_(self.candidates.vectors[j], alpha=coefficient)
        return row

    @cached_property
    def rows(self) -> Float[Tensor, "n d"]:
        self.candidates.sent[self.h :] = self.row
        return self.candidates.sent

    @property
    def here(self) -> Float[Tensor, "n d"]:
        return self.rows

    def by_row(self, function: Callable[[Tensor], Tensor]) -> Float[Tensor, " n"]:
        of_rows = self.candidates.of_rows(function)
        return torch.cat([of_rows, function(self.row[None]).expand(self.candidates.copies)])

    @cached_property
    def gram(self) -> Float64[Tensor, "n n"]:
        return self.gram_with(None)

    @cached_property
    def centred(self) -> Centred:
        return self.centred_with(None)

    def gram_with(self, extra: Float[Tensor, "k d"] | None) -> Float64[Tensor, "m m"]:
        beside = self.candidates.beside(extra)
        order = self._order(beside, extra)
        return gram_with_row(beside.gram, self._weights(beside))[order][:, order]

    def centred_with(self, extra: Float[Tensor, "k d"] | None) -> Centred:
        beside = self.candidates.beside(extra)
        return with_row(beside.centred, self._weights(beside))[self._order(beside, extra)]

    def _weights(self, beside: _Beside) -> Float64[Tensor, " k"]:
        """Make y of the rows, the vectors and further ones."""
        weights = self.coefficients.new_zeros(self.h + beside.n_vectors + beside.n_extra)
        weights[self.h + self.parts] = self.coefficients
        return weights

    def _order(self, beside: _Beside, extra: Tensor | None) -> Int64[Tensor, " m"]:
        """Take the rows, the copies of y, which comes last, and the further ones."""
        k, e = beside.n_vectors, 0 if extra is None else beside.n_extra
        y = torch.tensor([self.h + k + beside.n_extra]).expand(self.candidates.copies)
        return torch.cat([torch.arange(self.h), y, torch.arange(self.h + k, self.h + k + e)])

    @cached_property
    def squares(self) -> Float64[Tensor, " n"]:
        square = self.coefficients @ self.candidates.products[self.parts][:, self.parts] @ self.coefficients
        return torch.cat([self.candidates.rows.squares, square.clamp(min=0).expand(self.candidates.copies)])

    def norms(self, p: float = 2.0) -> Float64[Tensor, " n"]:
        return torch.cat([self.candidates.norms(p), row_norms(self.row[None], p).expand(self.candidates.copies)])

    def ordered(self, rule: str) -> Ordered:
        if self.once:
            return ordered(Updates(self.rows), rule)
        others = self.candidates.ordered(rule)
        return others.extended(self.row, self.candidates.copies) if self.row.isfinite().all() else others

    def combine(self, weights: Float[Tensor, " n"]) -> Float[Tensor, " d"]:
        weights = weights.to(self.row)
        combined = self.candidates.rows.combine(weights[: self.h])
        share = weights[self.h :].sum()
        return combined + share * self.row if share else combined
