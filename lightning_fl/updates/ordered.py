"""What every coordinate rule asks of the updates: the values of each coordinate in ascending order.

Sorting is nearly all of such a rule's work.  A search that asks it about many forged rows beside the same honest ones
sorts these once; where copies of one more value come in follows (`Ordered.extended`).
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from lightning_fl.updates.finite import check_any
from lightning_fl.updates.products import kth_smallest
from lightning_fl.updates.rows import broken_rows, which_finite
from lightning_fl.updates.threads import in_threads
from lightning_fl.updates.updates import Updates

# Entries sorted at a time: 2^18 of them (1 to 2 MB) fit a core's cache, 2^26 a GPU's memory.
_ENTRIES_CPU, _ENTRIES_GPU = 2**18, 2**26
# Relative difference that is rounding.
ROUNDING = 2.0**-40


def reduce_columns(
    updates: Float[Tensor, "n d"],
    pick: Callable[[Any], Any],
    kept: Sequence[int] | None = None,
    matrix: Float[Tensor, "m k"] | None = None,
) -> Float[Tensor, " d *_"]:
    """Sort every column and make one number of it, or several.

    NumPy sorts with the CPU's vector instructions once a column lies in one piece: at n = 115 an eighth of the work of
    `torch.median`, and half of that of a NumPy partition along the rows.

    Args:
        updates: One vector per row.
        pick: From the values of m columns as an (m, n) array or tensor, each ascending, to m numbers, or m rows.
        kept: Numbers of the rows that count, all of them finite.  None: all.
        matrix: Mixes these rows: the columns sorted are those of matrix @ rows, computed some at a time.

    Returns:
        What pick made of each column.
    """
    own: Any = slice(None) if kept is None else list(kept)
    n = len(updates) if kept is None else len(kept)
    n = n if matrix is None else len(matrix)
    if updates.device.type != "cpu":
        blocks = (block[own] for block in updates.split(max(1, _ENTRIES_GPU // n), dim=1))
        mixed = blocks if matrix is None else (matrix @ block for block in blocks)
        return torch.cat([pick(block.T.sort(dim=1).values) for block in mixed])
    width = max(1, _ENTRIES_CPU // n)
    spare: list[Tensor] = []  # memory of threads that wait: fresh pages cost as much as mixing

    def work(block: Tensor) -> Tensor:
        block = block[own]
        try:
            memory = spare.pop()
        except IndexError:
            memory = updates.new_empty(n * width if matrix is not None else 0)
        if matrix is not None:
            block = torch.mm(matrix, block, out=memory[: n * block.shape[1]].view(n, -1))
        if block.dtype.itemsize < 4:  # NumPy has no bfloat16
            block = block.float()
        values = block.T.numpy().copy()
        values.sort(axis=1)
        spare.append(memory)
        return torch.from_numpy(np.ascontiguousarray(pick(values))).to(updates.dtype)

    return torch.cat(in_threads(work, updates.detach().split(width, dim=1)))


def sorted_rows(values: Float[Tensor, "m n"]) -> Float[Tensor, "m n"]:
    """Sort every row, on a CPU by NumPy: ten times as fast as torch.

    >>> sorted_rows(torch.tensor([[3.0, 1.0, 2.0]]))
    tensor([[1., 2., 3.]])
    """
    if values.device.type != "cpu":
        return values.sort(dim=1).values
    ordered = values.clone(memory_format=torch.contiguous_format)
    ordered.numpy().sort(axis=1)
    return ordered


def smallest(values: Float[Tensor, "m n"], k: int) -> Bool[Tensor, "m n"]:
    """Mark the k smallest values of every row; of equal ones, up to rounding, the first.

    Args:
        values: Float64, no NaN.  A relative difference of 2^-40 or less is rounding.
        k: 1 <= k <= n.

    >>> smallest(torch.tensor([[3.0, 1.0, 2.0 + 1e-15, 2.0]]).double(), 2)
    tensor([[False,  True,  True, False]])
    """
    last = kth_smallest(values.clone(memory_format=torch.contiguous_format), k)[:, None]
    rounding = ROUNDING * last.abs()
    below, ties = values < last - rounding, (values - last).abs() <= rounding
    return below | (ties & (ties.cumsum(1) <= k - below.sum(1, keepdim=True)))


def middle_mean(values: Any, f: int) -> Any:
    """Average every row without its f first and its f last values, in float64.

    Args:
        values: (m, n) array or tensor.
        f: 0 <= 2f < n.  The most that leave a value give the median, the mean of the middle two where n is even.

    Returns:
        (m,) means.
    """
    return values[:, f : values.shape[1] - f].mean(1, dtype=float)


def nearest_mean(values: Any, centre: Any, k: int) -> Any:
    """Average the k values of every row that are nearest to its centre.

    They are neighbours: from the k smallest on, take a step up for as long as the value gained is nearer than the one
    lost.

    Args:
        values: (m, n) array or tensor, every row ascending; the values left out are overwritten by 0.
        centre: (m,) float64 numbers.
        k: 1 <= k <= n.

    Returns:
        (m,) means; of two values equally near, the smaller one counts.
    """
    spare, centre = values.shape[1] - k, centre[:, None]
    lost, gained = values[:, :spare], values[:, k:]
    steps = gained - centre < centre - lost  # true up to the last step
    lost *= ~steps
    gained *= steps
    return values.sum(1) / k


class Ordered:
    """The values of each coordinate in ascending order, in places 0 to n - 1.

    Args:
        rows: One vector per row.
        whole: Puts what processes find for their own columns together.
        kept: Numbers of the rows that count, all of them finite.  None: all.
        matrix: Mixes these rows: the values ordered are those of matrix @ rows, which are never held as a whole.

    >>> ordered = Ordered(torch.tensor([[4.0, 1.0], [0.0, 3.0], [2.0, 8.0]]))
    >>> ordered.at(1, 1), ordered.mean(0, 2), ordered.nearest(trim=1, k=2)
    (tensor([2., 3.]), tensor([1., 2.]), tensor([1., 2.]))
    """

    def __init__(
        self,
        rows: Float[Tensor, "n d"],
        whole: Callable[[Tensor], Tensor] = lambda found: found,
        kept: Sequence[int] | None = None,
        matrix: Float[Tensor, "m k"] | None = None,
    ):
        self._given, self._kept, self._matrix = rows, kept, matrix
        self.n = len(matrix) if matrix is not None else len(rows if kept is None else kept)
        self._whole = whole
        self._places: dict[int, Tensor] = {}
        self._sums: dict[tuple[int, int, int], tuple[Tensor, Tensor]] = {}

    @cached_property
    def rows(self) -> Float[Tensor, "n d"]:
        """Those that count, mixed."""
        rows = self._given if self._kept is None else self._given[list(self._kept)]
        return rows if self._matrix is None else self._matrix @ rows

    def _reduced(self, pick: Callable[[Any], Any]) -> Tensor:
        return self._whole(reduce_columns(self._given, pick, self._kept, self._matrix))

    def at(self, lower: int, upper: int) -> Float[Tensor, " d"]:
        """Average the values in two places, which may be the same."""
        if lower == upper:
            return self._reduced(lambda values: values[:, lower])
        return self._reduced(lambda values: values[:, lower] / 2 + values[:, upper] / 2)

    def mean(self, first: int, last: int) -> Float[Tensor, " d"]:
        """Average the values in places first to last - 1."""
        return self._reduced(lambda values: values[:, first:last].mean(1))

    def nearest(self, trim: int, k: int) -> Float[Tensor, " d"]:
        """Average the k values nearest to the mean of those left when the ``trim`` smallest and largest are.

        Of two values equally near, the smaller one counts.
        """
        return self._reduced(lambda values: nearest_mean(values, middle_mean(values, trim), k))

    def extended(self, row: Float[Tensor, " d"], copies: int) -> "Ordered":
        """Order the values with copies of one more finite row among them, without sorting anew."""
        return _OrderOfCopies(self, row, copies)

    @cached_property
    def columns(self) -> Float[Tensor, "d n"]:
        """Every column sorted, and in one piece."""
        wide = self.rows.to(torch.promote_types(self.rows.dtype, torch.float32))
        return reduce_columns(wide, lambda values: values)

    def values_at(self, place: int) -> Float[Tensor, " d"] | None:
        """The values in one place, remembered; None where there is no such place."""
        if not 0 <= place < self.n:
            return None
        if place not in self._places:
            self._places[place] = self.columns[:, place].contiguous()
        return self._places[place]

    def sums_with(self, first: int, last: int, copies: int) -> tuple[Float64[Tensor, "d m"], Float64[Tensor, " m"]]:
        """Sum places first to last - 1 of the values and copies of one more value y as W + c y.

        Returns:
            W in each coordinate if k = 0, ..., n values are below y, remembered; c, how many copies are in those
            places, for each k.
        """
        key = first, last, copies
        if key not in self._sums:
            n, k = self.n, torch.arange(self.n + 1, device=self.rows.device)
            # Below y are places first to k - 1, above it places k + copies to last - 1.
            below, above = k.clamp(min(first, n), min(last, n)), k.clamp(max(first - copies, 0), max(last - copies, 0))
            table = self.columns.new_empty(len(self.columns), n + 1, dtype=torch.float64)
            width = max(1, (_ENTRIES_CPU if self.rows.device.type == "cpu" else _ENTRIES_GPU) // n)
            for columns, part in zip(self.columns.split(width), table.split(width), strict=True):
                sums = F.pad(columns.cumsum(1, dtype=torch.float64), (1, 0))  # of so many smallest values
                torch.sub(sums[:, below] - sums[:, below[:1]], sums[:, above] - sums[:, above[-1:]], out=part)
            count = (k + copies).clamp(first, last) - k.clamp(first, last)
            self._sums[key] = table, count.double()
        return self._sums[key]


@runtime_checkable
class KnowsOrder(Protocol):
    """Updates that know a faster way to order their values than sorting them."""

    def ordered(self, rule: str) -> Ordered:
        """See the function of this name."""


def ordered(updates: Updates, rule: str) -> Ordered:
    """Order the values of each coordinate of a round; rows with NaN or inf are left out.

    Args:
        updates: The round.
        rule: Who asks, for the error.

    Raises:
        DivergedError: If no row is finite.

    >>> ordered(Updates(torch.tensor([[4.0, 1.0], [torch.inf, 3.0], [2.0, 8.0]])), "rule").mean(0, 2)
    tensor([3.0000, 4.5000])
    """
    if isinstance(updates, KnowsOrder):
        return updates.ordered(rule)
    source, matrix = updates.mixture or (updates, None)
    if matrix is not None:
        norms = source.lengths
        fine = norms.isfinite()
        matrix = matrix[(matrix[:, ~fine] == 0).all(1)][:, fine].to(source.dtype)
        if not len(matrix) or (matrix.abs().double() @ norms[fine]).max() > torch.finfo(matrix.dtype).max:
            source, matrix = updates, None  # sums overflow: look at the mixed rows themselves
        else:
            matrix = matrix.to(source.device, non_blocking=True)
    if matrix is not None:
        finite = fine.tolist()
    elif source.held.partial:
        finite = (source.held.total(broken_rows(source.here).double()) == 0).tolist()
    else:
        finite = which_finite(source.here)
    kept = [i for i, whole in enumerate(finite) if whole]
    check_any(kept, f"{updates.n}", rule)
    return Ordered(source.here, updates.held.whole, None if len(kept) == source.n else kept, matrix)


class _OrderOfCopies(Ordered):
    """The values of others and copies of one more row; see `Ordered.extended`.

    The value in place p is y, held between the others' values in places p - copies and p: of 1, 3, 5, 7, 9 and twice y
    that in place 4, the first being 0, is 9 where y is above 9, 5 where it is below 5, and else y.
    """

    def __init__(self, others: Ordered, row: Tensor, copies: int):
        self.others, self.copies = others, copies
        self.n = others.n + copies
        self._row = row.to(others.columns)

    @cached_property
    def rows(self) -> Float[Tensor, "n d"]:
        rows = self.others.rows
        return torch.cat([rows, self._row.to(rows).expand(self.copies, -1)])

    def at(self, lower: int, upper: int) -> Float[Tensor, " d"]:
        value = self._at(lower) if lower == upper else self._at(lower) / 2 + self._at(upper) / 2
        return value.to(self.others.rows)

    def mean(self, first: int, last: int) -> Float[Tensor, " d"]:
        return (self._sum(first, last) / (last - first)).to(self.others.rows)

    def nearest(self, trim: int, k: int) -> Float[Tensor, " d"]:
        if self.n - 2 * trim <= 2:
            centre = (self._at(trim).double() + self._at(self.n - 1 - trim)) / 2
        else:
            centre = self._sum(trim, self.n - trim) / (self.n - 2 * trim)
        spare = self.n - k
        if spare > k:  # what is lost in one step may have been gained in another
            return Ordered(self.rows).nearest(trim, k)
        total = self._sum(spare, k) if k > spare else torch.zeros_like(centre)
        for place in range(spare):
            lost, gained = self._at(place), self._at(place + k)
            total += torch.where(gained - centre < centre - lost, gained, lost)
        return (total / k).to(self.others.rows)

    def _at(self, place: int) -> Float[Tensor, " d"]:
        low, high = self.others.values_at(place - self.copies), self.others.values_at(place)
        return self._row if low is None and high is None else self._row.clamp(low, high)

    def _sum(self, first: int, last: int) -> Float64[Tensor, " d"]:
        table, counts = self.others.sums_with(first, last, self.copies)
        below = torch.searchsorted(self.others.columns, self._row[:, None])
        return table.gather(1, below)[:, 0] + counts[below[:, 0]] * self._row


def largest_entries(row: Float[Tensor, " d"], k: int) -> Bool[Tensor, " d"]:
    """Mark the k entries of largest size, of equal ones the first.

    >>> largest_entries(torch.tensor([1.0, -3.0, 2.0, -2.0]), 2)
    tensor([False,  True,  True, False])
    """
    size = row.abs().to(torch.promote_types(row.dtype, torch.float32))
    least = kth_smallest(size[None].clone(), len(row) - k + 1)
    reached = size >= least
    if row.device.type == "cpu" and int(reached.count_nonzero()) == k:  # no ties to break, and nobody waits for a GPU
        return reached
    above, ties = size > least, size == least
    return above | (ties & (ties.cumsum(0) <= k - above.sum()))
