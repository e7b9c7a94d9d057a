"""What a rule would answer, estimated from some columns: for a search that asks about many forged rows.

Inner products stay exact, and with them the answers of most weightings.  Work done column by column, which is nearly
all the work of a rule that sorts, is done in a sample of the columns only.  The other columns of the answer are NaN, so
that a rule that goes on to use all columns cannot mistake the sample for the whole.

Where a rule weighs rows by sums over columns or groups of columns, the sums are estimated from the sample.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from lightning_fl.adversary.search.candidates import Candidates, _Candidate
from lightning_fl.updates.columns import Columns
from lightning_fl.updates.ordered import Ordered
from lightning_fl.updates.rows import broken_rows
from lightning_fl.updates.updates import Updates

# Draws of columns for which the rows' products are kept.
_SEEN = 4
# Groups of columns that an estimate asks about.
_GROUPS = 32


@dataclass(frozen=True)
class Sample:
    """Some columns, how many each stands for, and those with so large a share that none is like them."""

    index: Int64[Tensor, " k"]
    stands_for: Float64[Tensor, " k"]
    alone: Int64[Tensor, " _"]


def sample_columns(vectors: Float[Tensor, "m d"], k: int) -> Sample | None:
    """Choose about k columns in proportion to their shares in the vectors' squared lengths, without any randomness.

    A column with share q_j, averaged over the vectors, is chosen where k (q_1 + ... + q_j) passes a half-integer, and
    stands for max(1, 1 / (k q_j)) columns.

    Args:
        vectors: Directions in which the columns matter.
        k: How many columns at most.

    Returns:
        The columns; None where a sample saves nothing or the vectors do not tell.

    >>> sample = sample_columns(torch.tensor([[4.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0]]), 3)
    >>> sample.index, sample.stands_for
    (tensor([0, 1]), tensor([1.0000, 6.6667], dtype=torch.float64))
    """
    shares = vectors.double().square()
    shares = (shares / shares.sum(1, keepdim=True)).nan_to_num_(nan=0.0).mean(0)
    expected = shares * (k / shares.sum())
    if vectors.shape[1] <= 2 * k or not expected.isfinite().all():
        return None
    passed = (expected.cumsum(0) + 0.5).floor()
    index = passed.diff(prepend=torch.zeros_like(passed[:1])).nonzero().flatten()
    alone = (shares >= shares.sum() / _GROUPS).nonzero().flatten()
    return Sample(index, 1 / expected[index].clamp(max=1), alone)


class SampledCandidates:
    """`Candidates` that rules see in some columns.

    Args:
        whole: The rows, and what y is made of.
        sample: The columns.

    >>> rows, ones = torch.arange(20.0).view(2, 10), torch.ones(1, 10)
    >>> sample = Sample(torch.tensor([3, 7]), torch.tensor([5.0, 5.0]).double(), torch.tensor([], dtype=torch.int64))
    >>> sampled = SampledCandidates(Candidates(Updates(rows), ones, 1, torch.ones(3)), sample)
    >>> sampled.by([6.0]).ordered("median").at(1, 1)
    tensor([nan, nan, nan, 6., nan, nan, nan, 7., nan, nan])
    """

    def __init__(self, whole: Candidates, sample: Sample):
        self.whole = whole
        self.sample = sample
        self.estimates = False
        """Whether a rule's answer may differ from its answer on all columns."""
        self.guesses = False
        """Whether a rule's choice of rows may have been."""
        self._drawn: list[tuple[Tensor | slice, Candidates]] = []

    @cached_property
    def few(self) -> Candidates:
        """Rows and vectors in the columns of the sample; a row with NaN or inf anywhere is NaN."""
        whole, index = self.whole, self.sample.index
        rows = whole.rows.rows
        some = Updates(rows[:, index].masked_fill_(broken_rows(rows)[:, None], torch.nan))
        return Candidates(some, whole.vectors[:, index], whole.copies, whole.data_weights)

    def by(self, coefficients: Sequence[float]) -> "_SampledCandidate":
        """Let the copies be y with these coefficients; see `Candidates.by`."""
        return _SampledCandidate(self, coefficients)

    def drawn(self, index: Tensor | slice) -> Candidates:
        """Rows and vectors in columns that a rule has chosen, remembered."""
        for known, candidates in self._drawn:
            if isinstance(index, slice):
                same = known == index
            else:
                same = isinstance(known, Tensor) and torch.equal(known, index)
            if same:
                return candidates
        whole = self.whole
        candidates = Candidates(whole.rows.columns(index), whole.vectors[:, index], whole.copies, whole.data_weights)
        self._drawn = [*self._drawn[1 - _SEEN :], (index, candidates)]
        return candidates


@dataclass(frozen=True, eq=False)
class SampledColumns(Columns):
    """The columns of a sample; vectors that are put together from them are NaN elsewhere.

    To a rule this looks like one process of several, which holds some of the columns: see `updates.exchange`.
    """

    sampled: SampledCandidates

    partial = True

    def own(self, vectors: Tensor) -> Tensor:
        """Cut the sample out of whole vectors."""
        return vectors[..., self.sampled.sample.index]

    def whole(self, block: Float[Tensor, "*b _"]) -> Float[Tensor, "*b d"]:
        """Put the values where their columns are."""
        found = block.new_full((*block.shape[:-1], self.d), torch.nan)
        found[..., self.sampled.sample.index] = block
        return found

    def weighed(self, rows: Float[Tensor, "n _"]) -> Float[Tensor, "n _"]:
        """Let each column stand for those that are like it."""
        self.sampled.estimates = self.sampled.guesses = True
        return rows * self.sampled.sample.stands_for.sqrt().to(rows)

    def some_of(self, groups: Sequence[Tensor]) -> tuple[Sequence[Tensor], Float64[Tensor, " g"]]:
        """Choose every so manieth group, and those that hold a column like no other."""
        every = -(-len(groups) // _GROUPS)
        if every == 1:
            return super().some_of(groups)
        self.sampled.estimates = self.sampled.guesses = True
        owner = torch.arange(len(groups)).repeat_interleave(torch.tensor([len(group) for group in groups]))
        stands_for = torch.zeros(len(groups), dtype=torch.float64, device=groups[0].device)
        stands_for[::every] = every
        # A group that holds a column like no other stands for itself alone.
        alone = torch.isin(torch.cat(list(groups)), self.sampled.sample.alone)
        stands_for[owner.to(alone.device)[alone]] = 1
        chosen = stands_for.nonzero().flatten()
        return [groups[g] for g in chosen.tolist()], stands_for[chosen]


class _SampledCandidate(_Candidate):
    """Rows and copies of y; what is done column by column is done in the sample, and NaN elsewhere."""

    def __init__(self, sampled: SampledCandidates, coefficients: Sequence[float]):
        whole = sampled.whole.by(coefficients)
        super().__init__(sampled.whole, whole.of_vectors)
        self.held = SampledColumns(self.d, sampled)
        self.sampled, self._given = sampled, coefficients

    @property
    def device(self) -> torch.device:
        return self.candidates.vectors.device

    @property
    def dtype(self) -> torch.dtype:
        return self.candidates.vectors.dtype

    @property
    def here(self) -> Float[Tensor, "n _"]:
        self.sampled.estimates = True
        return self.sampled.few.by(self._given).rows

    @property
    def whole(self) -> Updates:
        found = self.candidates.by(self._given)
        found.data_weights, found.ids = self.data_weights, self.ids
        return found

    def ordered(self, rule: str) -> Ordered:
        self.sampled.estimates = True
        return _Scattered(self.sampled.few.by(self._given).ordered(rule), self.held.whole)

    def products(self, vector: Float[Tensor, " d"]) -> Float64[Tensor, " n"]:
        candidates = self.candidates
        of_y = Updates(candidates.vectors).products(vector)[self.parts] @ self.coefficients
        return torch.cat([candidates.rows.products(vector), of_y.expand(candidates.copies)])

    def columns(self, index: Int64[Tensor, " k"] | slice) -> Updates:
        found = self.sampled.drawn(index).by(self._given)
        found.data_weights, found.ids = self.data_weights, self.ids
        return found


class _Scattered(Ordered):
    """Ordered values of some columns, answering for all of them."""

    def __init__(self, ordered: Ordered, whole: Callable[[Tensor], Tensor]):
        self.n = ordered.n
        self._ordered, self._whole = ordered, whole

    def at(self, lower: int, upper: int) -> Float[Tensor, " d"]:
        return self._whole(self._ordered.at(lower, upper))

    def mean(self, first: int, last: int) -> Float[Tensor, " d"]:
        return self._whole(self._ordered.mean(first, last))

    def nearest(self, trim: int, k: int) -> Float[Tensor, " d"]:
        return self._whole(self._ordered.nearest(trim, k))
