"""Inner products between rows and the distances that follow from them, in float64, from one pass over the columns.

Inner products about 0 serve rules that look at lengths and angles.  Distances need another origin: of rows that share a
large offset, ||x_i||^2 + ||x_j||^2 - 2 <x_i, x_j> keeps no digit.  So they come from inner products about an origin in
the middle of the rows, found in the same pass.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64, Int64
from threadpoolctl import ThreadpoolController
from torch import Tensor

from lightning_fl.updates.threads import in_threads, numpy_multiplies

# Columns converted to float64 at a time: 115 x 4096 doubles are 4 MB, which fit a core's cache; where rows are few, as
# many times as many as they go into 128.  A GPU wants more.
_COLUMNS_CPU, _ROWS_CPU, _ENTRIES_GPU = 2**12, 128, 2**24
# Columns for which a further thread pays.
_SHARE = 3 * _COLUMNS_CPU
# Rows of the Gram matrix at a time: at least this many, in at most this many parts.  A product of torch's does all of
# the work of a part on the diagonal, so that small ones save half of it; on a GPU fewer products count for more.
_ROWS, _ROWS_TORCH_CPU, _PARTS = 512, 32, 64
# Entries of an n x n matrix worked on at a time: beside n x n itself, a part of 2^20 doubles is nothing.
_PART = 2**20
# Columns added up to one for the choice of a block's middle row.
_SUMMED = 64
# Share of the squared lengths that a squared distance must exceed to be more than rounding.
SAME = 2.0**-44
# A longer row counts as one of inf: rules multiply its squared length by others, which stays below 1e308.  Rows of
# float32 are shorter.
LONGEST = 1e75


def float64_columns(*blocks: Tensor) -> Iterator[Tensor]:
    """Stack the blocks, some columns at a time; what is yielded may be written to, and is overwritten by the next."""
    sizes = [len(block) for block in blocks]
    n = sum(sizes)
    width = _COLUMNS_CPU * max(_ROWS_CPU // n, 1) if blocks[0].device.type == "cpu" else max(_ENTRIES_GPU // n, 1)
    width = min(width, blocks[0].shape[1])
    memory = blocks[0].new_empty(n * width, dtype=torch.float64)
    for columns in zip(*(block.detach().split(width, dim=1) for block in blocks), strict=True):
        stacked = memory[: n * columns[0].shape[1]].view(n, -1)
        for part, block in zip(stacked.split(sizes), columns, strict=True):
            part.copy_(block)
        yield stacked


def gram_matrix(*blocks: Float[Tensor, "_ d"]) -> Float64[Tensor, "n n"]:
    """Compute all inner products between the rows of the blocks, in float64.

    Entry (i, j) depends on rows i and j alone: a row with NaN or inf spoils its own row and column, nothing else,
    and shows on the diagonal.  float32 rows of up to 3e38 do not overflow.

    Args:
        blocks: Matrices of equal width whose rows are stacked in order, without copying them.

    Returns:
        The symmetric (n, n) matrix of inner products, n rows in all.

    >>> gram_matrix(torch.tensor([[3.0, 4.0], [1.0, 0.0]]))
    tensor([[25.,  3.],
            [ 3.,  1.]], dtype=torch.float64)
    """
    return _mirrored(_over_columns(_products, blocks))


def _products(*blocks: Tensor) -> Tensor:
    """Inner products on and below the diagonal."""
    n = sum(len(block) for block in blocks)
    gram = blocks[0].new_zeros(n, n, dtype=torch.float64)
    for columns in float64_columns(*blocks):
        _add_products(gram, columns)
    return gram


def _over_columns(work: Callable[..., Tensor], blocks: Sequence[Tensor]) -> Tensor:
    """Sum up what work finds: where NumPy multiplies, in as many threads as torch has, each over some of the columns.

    Several threads of NumPy's own would go on waiting where torch's compute: a round of two takes a third longer.
    """
    if blocks[0].device.type != "cpu" or not numpy_multiplies():
        return work(*blocks)
    # What is summed over a share, in float64, is at most half as large as the share.
    least = max(_SHARE, 4 * sum(len(block) for block in blocks))
    n_shares = max(min(torch.get_num_threads(), blocks[0].shape[1] // least), 1)
    shares = list(zip(*(block.detach().tensor_split(n_shares, dim=1) for block in blocks), strict=True))
    with _blas().limit(limits=1, user_api="blas"):
        first, *others = in_threads(lambda share: work(*share), shares)
    return sum(others, start=first)


def as_broken(gram: Float64[Tensor, "n n"], squares: Float64[Tensor, " n"]) -> Float64[Tensor, "n n"]:
    """Make the inner products of rows that are longer than `LONGEST` those of rows that hold inf.

    Args:
        gram: Inner products about any origin.
        squares: ||x_i||^2.

    Returns:
        The matrix itself, not a copy, where there are no such rows.
    """
    broken = ~(squares <= LONGEST**2)
    return gram.masked_fill(broken | broken[:, None], torch.inf) if broken.any() else gram


def _add_products(gram: Tensor, columns: Tensor) -> None:
    """Add some columns' inner products to the sum, on and below the diagonal."""
    on_cpu = columns.device.type == "cpu"
    by_numpy = on_cpu and numpy_multiplies()
    size = max(_ROWS_TORCH_CPU if on_cpu and not by_numpy else _ROWS, len(columns) // _PARTS)
    for i in range(0, len(columns), size):
        rows, before = columns[i : i + size], columns[: i + size]
        product = _by_numpy(rows, before) if by_numpy else rows @ before.T
        gram[i : i + size, : i + size] += product  # addmm_ into the sum rounds more


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def _by_numpy(a: Tensor, b: Tensor) -> Tensor:
    """Compute a @ b.T, doing half of the work where b is a."""
    with np.errstate(all="ignore"):  # NaN and inf are no surprise
        return torch.from_numpy(a.numpy() @ b.numpy().T)


def _mirrored(gram: Tensor) -> Tensor:
    """Copy what is below the diagonal to above it, in place."""
    for i in range(0, len(gram), 512):
        rows, rest = slice(i, i + 512), slice(i + 512, None)
        gram[rows, rows] = gram[rows, rows].tril() + gram[rows, rows].tril(-1).T
        gram[rows, rest] = gram[rest, rows].T
    return gram


def squared_distances(gram: Float64[Tensor, "n n"]) -> Float64[Tensor, "n n"]:
    """Compute ||x_i - x_j||^2 from finite inner products.

    >>> squared_distances(gram_matrix(torch.tensor([[0.0, 0.0], [3.0, 4.0]])))
    tensor([[ 0., 25.],
            [25.,  0.]], dtype=torch.float64)
    """
    return distances_of(slice(None), gram, gram.diagonal()).fill_diagonal_(0)


def distances_of(
    rows: slice, products: Float64[Tensor, "m n"], lengths: Float64[Tensor, " n"]
) -> Float64[Tensor, "m n"]:
    """Compute some rows' squared distances to all, with rounding where that of a row to itself should be.

    Args:
        rows: Which they are.
        products: Their inner products with all.
        lengths: ||x_j||^2 of all.
    """
    return (lengths[rows, None] + lengths).sub_(products, alpha=2).clamp_(min=0)


def in_parts(n: int) -> list[slice]:
    """Cut the rows of an n x n matrix into parts of about a million entries."""
    size = max(_PART // n, 1)
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]


def by_parts(function: Callable[[slice], Tensor], out: Float[Tensor, " n"] | Int64[Tensor, " n"]) -> Tensor:
    """Find a number for each row of an n x n matrix, some rows at a time.

    Args:
        function: Gives those of some rows.
        out: What to write them into: kept by themselves among what each part needs, they would scatter the free memory.

    Returns:
        All of them.
    """
    for rows in in_parts(len(out)):
        out[rows] = function(rows)
    return out


def equal_rows(gram: Float64[Tensor, "n n"], scale: Float64[Tensor, " n"]) -> Int64[Tensor, " n"]:
    """Find for each row the first one whose squared distance from it is rounding: at most 2^-43 min(s_i, s_j).

    Args:
        gram: Inner products about any origin.
        scale: s_i, the squared length that rounding is relative to, such as the Gram matrix's diagonal.

    Returns:
        Row numbers; a row that is like none before it, or not finite, is its own.

    >>> gram = gram_matrix(torch.tensor([[1.0], [2.0], [1.0]]))
    >>> equal_rows(gram, gram.diagonal())
    tensor([0, 1, 0])
    """
    scale = scale.nan_to_num(nan=-1, posinf=-1)
    out = torch.empty(len(gram), dtype=torch.int64, device=gram.device)
    return by_parts(partial(_first_equal, gram, scale), out)


def _first_equal(gram: Tensor, scale: Tensor, rows: slice) -> Tensor:
    limit = torch.minimum(scale[rows, None], scale).mul_(2 * SAME)
    same = distances_of(rows, gram[rows], gram.diagonal()) <= limit
    same.diagonal(rows.start).fill_(True)
    return same.to(torch.uint8).argmax(1)


def merged(gram: Float64[Tensor, "n n"], first: Int64[Tensor, " n"], in_place: bool = False) -> Float64[Tensor, "n n"]:
    """Replace each row by the one of the given number, and each column.

    Args:
        gram: Symmetric.
        first: The numbers.
        in_place: Whether the matrix may be changed.

    Returns:
        The matrix itself, not a copy, where nothing changes.
    """
    changed = (first != torch.arange(len(gram))).nonzero().flatten()
    others = first[changed]
    if torch.equal(gram[changed], gram[others]):
        return gram
    gram = gram if in_place else gram.clone()
    gram[changed] = gram[others]
    gram[:, changed] = gram[:, others]
    return gram


def kth_smallest(values: Float[Tensor, "m n"], k: int | Int64[Tensor, ""]) -> Float[Tensor, " m"]:
    """Find the k-th smallest value of every row, on a CPU by NumPy's partition: a fourth of torch's time.

    Args:
        values: NaN is the largest.  On a CPU their order within a row is lost.
        k: 1 <= k <= n.

    >>> kth_smallest(torch.tensor([[3.0, 1.0, 2.0, torch.nan]]), 2)
    tensor([2.])
    """
    if values.device.type != "cpu":
        ordered = values.sort(dim=1).values
        return ordered[:, k - 1] if isinstance(k, int) else ordered.gather(1, (k - 1).expand(len(values), 1))[:, 0]
    values.numpy().partition(int(k) - 1, axis=1)
    return values[:, int(k) - 1]


@dataclass(frozen=True)
class Centred:
    """Inner products between rows x_i about an origin r in the middle of them, and what leads back to the origin 0.

    A rule that does not see a common offset takes `gram` where it would take inner products.  Rows whose distance is
    rounding have become one.

    Args:
        gram: <x_i - r, x_j - r>.
        offset: <x_i - r, r>.
        square: <r, r>.
        scale: The squared lengths that the rounding of ``gram`` is relative to; its diagonal, unless rows were mixed.
    """

    gram: Float64[Tensor, "n n"]
    offset: Float64[Tensor, " n"]
    square: Float64[Tensor, ""]
    scale: Float64[Tensor, " n"]

    def __getitem__(self, rows: slice | Int64[Tensor, " m"]) -> "Centred":
        """Some of the rows, also several times."""
        return Centred(self.gram[rows][:, rows], self.offset[rows], self.square, self.scale[rows])

    @property
    def with_zero(self) -> Float64[Tensor, "m m"]:
        """``gram`` of the rows followed by a row of zeros: -r about the origin r."""
        return bordered(self.gram, -self.offset, self.square)

    @property
    def with_origin(self) -> Float64[Tensor, "m m"]:
        """G of the x_i - r followed by r: combinations A, the last coefficient being r's, have the products A G A^T."""
        return bordered(self.gram, self.offset, self.square)


def bordered(gram: Tensor, products: Tensor, square: Tensor) -> Tensor:
    """Add a row to a Gram matrix: its inner products with the others and its squared length."""
    gram = F.pad(gram, (0, 1, 0, 1))
    gram[-1, :-1] = gram[:-1, -1] = products
    gram[-1, -1] = square
    return gram


def merge_equal(gram: Tensor, offset: Tensor, square: Tensor, scale: Tensor) -> Centred:
    """Make rows one whose distance is rounding."""
    gram.diagonal().clamp_(min=0)
    first = equal_rows(gram, scale)
    return Centred(merged(gram, first, in_place=True), offset[first], square, scale[first])


def middle_row(lengths: Tensor, products: Callable[[slice], Tensor], n_middle: int) -> Tensor:
    """Find the row, among the first ones, around which the smallest ball holds more than half of them.

    Where more than half are honest, the row is near some of these, whatever the others are.  Rows that are not finite
    do not count; where there are no others, rows after the first ones do.

    Args:
        lengths: ||x_i||^2.
        products: Gives the inner products of some rows with all.
        n_middle: How many the first ones are.
    """
    finite = lengths.isfinite()
    eligible = finite[:n_middle]
    k = eligible.sum() // 2 + 1  # itself and half of them
    radii = by_parts(partial(_radii, lengths[:n_middle], products, k), lengths.new_empty(n_middle))
    middle = radii.masked_fill(~eligible, torch.inf).argmin()
    return torch.where(eligible.any(), middle, finite.to(torch.uint8).argmax())


def _radii(lengths: Tensor, products: Callable[[slice], Tensor], k: Tensor, rows: slice) -> Tensor:
    """Some rows' squared distances to their k-th nearest, each being its own first."""
    distances = distances_of(rows, products(rows)[:, : len(lengths)], lengths)  # NaN and inf come last
    distances.diagonal(rows.start).zero_()
    return kth_smallest(distances, k)


@cache
def _signs(device: torch.device) -> Tensor:
    signs = 2 * torch.randint(2, (_SUMMED,), generator=torch.Generator().manual_seed(0)) - 1
    return signs.double().to(device)


def _sums(columns: Tensor) -> Tensor:
    """Add up every 64 columns, with fixed random signs: distances between the sums are about those between the rows.

    A selection of columns would not do: a row may be like the others there and huge elsewhere.
    """
    whole = columns.shape[1] // _SUMMED * _SUMMED
    sums = columns[:, :whole].reshape(-1, _SUMMED) @ _signs(columns.device)
    return torch.cat([sums.view(len(columns), -1), columns[:, whole:]], dim=1)


def _inner(sums: Tensor, n: int) -> tuple[Tensor, Callable[[slice], Tensor]]:
    """The first rows' squared lengths, and their inner products some rows at a time; as one matrix where that is small.

    Lengths and products are of one matrix product, so that rows that are equal have a distance of 0.
    """
    if len(in_parts(n)) == 1:
        gram = sums @ sums.T
        return gram.diagonal(), gram.__getitem__
    return sums.square().sum(1), lambda rows: sums[rows] @ sums[:n].T


def _about_an_origin(n_middle: int, *blocks: Tensor) -> Tensor:
    """Inner products on and below the diagonal; then a line of those with the origin, and one of its squared length."""
    n = sum(len(block) for block in blocks)
    found = blocks[0].new_zeros(n + 2, n, dtype=torch.float64)
    for columns in float64_columns(*blocks):
        origin = columns.index_select(0, middle_row(*_inner(_sums(columns), n_middle), n_middle).view(1))[0]
        columns -= origin
        _add_products(found[:n], columns)
        found[n] += columns @ origin
        found[n + 1] += origin @ origin
    return found


def centred_products(
    rows: Float[Tensor, "n d"],
    *others: Float[Tensor, "_ d"],
    total: Callable[[Tensor], Tensor] = lambda sums: sums,
) -> Centred:
    """Compute all inner products between rows about an origin among them, in float64.

    In each block of columns the origin is the row with the smallest ball around it that holds more than half of the
    rows, so that fewer than half, whatever they are, do not move it away from the others.  Put together from the
    blocks, it need not be a row: of (0, 8), (8, 0) and (9, 9) in two blocks of one column each it is (8, 8).

    Args:
        rows: Rows among which the origin is chosen.
        others: Further rows (of the server), without copying them.
        total: Adds up what processes have summed, each over columns of its own.

    Returns:
        Inner products between all of them, in order.  A row with NaN or inf spoils its own entries, nothing else, and
        shows on the diagonal.

    >>> centred_products(torch.tensor([[1e9], [1e9 + 64], [7e30]])).gram[:2, :2]
    tensor([[   0.,    0.],
            [   0., 4096.]], dtype=torch.float64)
    """
    sums = total(_over_columns(partial(_about_an_origin, len(rows)), (rows, *others))).cpu()
    gram, offset, square = _mirrored(sums[:-2]), sums[-2], sums[-1, 0]
    if rows.dtype == torch.float64:
        gram = as_broken(gram, gram.diagonal() + 2 * offset + square)
    return merge_equal(gram, offset, square, gram.diagonal().clone())
