"""LASA: sparsify the updates, then keep in each layer those of usual length and usual signs.

Jiahao Xu, Zikai Zhang, Rui Hu. Achieving Byzantine-Resilient Federated Learning via Layer-Adaptive Sparsified Model
Aggregation. WACV 2025. arXiv:2409.01435.
"""

from collections.abc import Iterator
from math import floor
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Lt
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from lightning_fl.aggregator.alignins import MedianOf, median_of, usual
from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.aggregator.mixing import clipping_scales
from lightning_fl.errors import SettingError
from lightning_fl.ranges import PositiveFloat
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.layout import Layout, owners
from lightning_fl.updates.products import kth_smallest
from lightning_fl.updates.rows import finite_rows
from lightning_fl.updates.updates import Updates

# Entries converted to float64 at a time.
_ENTRIES_CPU, _ENTRIES_GPU = 2**19, 2**26


class _Sparsified:
    """The finite rows, clipped and sparsified, some columns of one tensor at a time.

    Args:
        layout: The tensors.
        rows: Numbers of the finite rows.
        scales: By how much each of them is shortened.
        cuts: The size up to which a row's entries become 0 in tensors of two or more dimensions.
    """

    def __init__(
        self, layout: Layout, rows: Int64[Tensor, " m"], scales: Float64[Tensor, " m"], cuts: Float64[Tensor, " m"]
    ):
        self.layout, self.rows, self.scales, self.cuts = layout, rows, scales[:, None], cuts[:, None]

    def pieces(
        self, given: Float[Tensor, "n k"], owner: Int64[Tensor, " k"], sparse: bool = True
    ) -> Iterator[tuple[int, Float64[Tensor, "m _"]]]:
        """Go through the columns that are here; give each piece with the number of its tensor."""
        width = max(1, (_ENTRIES_CPU if given.device.type == "cpu" else _ENTRIES_GPU) // len(self.rows))
        sizes = owner.bincount(minlength=len(self.layout)).tolist()
        for t, columns in enumerate(given.split(sizes, dim=1)):
            for piece in columns.split(width, dim=1) if columns.shape[1] else []:
                values = piece[self.rows].double()
                if sparse and self.layout[t].dimensions > 1:
                    values.masked_fill_(values.abs() <= self.cuts, 0)
                yield t, values.mul_(self.scales)

    def sums(self, given: Float[Tensor, "n k"], owner: Int64[Tensor, " k"]) -> Float64[Tensor, "m t 3"]:
        """Add up squares, signs and sizes of signs over each tensor's columns."""
        found = self.scales.new_zeros(len(self.rows), len(self.layout), 3)
        for t, values in self.pieces(given, owner):
            signs = values.sign()
            found[:, t] += torch.stack([values.square().sum(1), signs.sum(1), signs.abs().sum(1)], dim=1)
        return found

    def combined(
        self, given: Float[Tensor, "n k"], owner: Int64[Tensor, " k"], weights: Float64[Tensor, "m t"], sparse: bool
    ) -> Float[Tensor, " k"]:
        """Combine the rows with other weights in each tensor."""
        weights = weights.to(given.device)
        parts = [weights[:, t] @ values for t, values in self.pieces(given, owner, sparse)]
        return torch.cat(parts).to(given) if parts else given.new_empty(0)


def _cuts(rows: Float[Tensor, "m d"], columns: Int64[Tensor, " k"], keep: int) -> Float64[Tensor, " m"]:
    """The keep-th largest size among the given entries of each row."""
    wide = torch.promote_types(rows.dtype, torch.float32)
    sizes = (row[columns].abs().to(wide)[None] for row in rows)
    return torch.cat([kth_smallest(size, len(columns) - keep + 1) for size in sizes]).double()


class Lasa(Aggregator):
    """Clip to the median norm, zero small entries, and average in each tensor the updates that are usual there.

    Of each update the floor((1 - sparsity) M) largest entries mark a size, M the number of entries in all tensors of
    two or more dimensions; entries there of this size or less become 0.  Then norm_i = ||x_i[T]|| and
    purity_i = sum sign x_i[T] / sum |sign x_i[T]| are computed for every tensor T.  An update counts in T where both
    are less than lambda_n and lambda_s standard deviations from the median over clients; where none does, all count.

    Its trust adds up the shares in the tensors, by their size.

    Args:
        lambda_n: Limit on norms, > 0 (the authors': 1 for CIFAR-10, 2 elsewhere, as FLPoison has it).
        lambda_s: Limit on purities, > 0.
        sparsity: Share of the entries that become 0, 0 <= sparsity < 1; 0 zeroes none.
        aggregate: What is averaged: "sparse", as title and abstract say, and as the authors' code computes, whose masks
            are written into the same tensors; "dense", the clipped updates.
        median: Of the norms: "middle", the mean of the middle two of an even number, or "lower", as in the code.

    Note:
        A tensor of zeros has purity 0; in the authors' code it makes all of that tensor's scores NaN, so that everybody
        counts.  The entry that marks the size becomes 0, too.  An update with NaN or inf is left out of everything.
    """

    needs_layout = True
    moves_with = ("scale",)
    searches = True

    def __init__(
        self,
        lambda_n: PositiveFloat = 1.0,
        lambda_s: PositiveFloat = 1.0,
        sparsity: Annotated[float, Ge(0), Lt(1)] = 0.3,
        aggregate: Literal["sparse", "dense"] = "sparse",
        median: MedianOf = "middle",
    ):
        self.lambda_n = lambda_n
        self.lambda_s = lambda_s
        self.sparsity = sparsity
        self.sparse = aggregate == "sparse"
        self.median: MedianOf = median

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        norms, layout = updates.squares.sqrt(), updates.layout
        rows = finite_rows(norms, "lasa")
        scales = clipping_scales(norms[rows], median_of(norms[rows], self.median))
        owner = owners(layout, updates.device)
        cuts = self._cuts(updates, owner).to(updates.device)[rows]
        some = _Sparsified(layout, rows, scales.to(updates.device), cuts)
        squares, signs, entries = updates.over_columns(some.sums, owner).cpu().unbind(2)
        purity = torch.where(entries > 0, signs / entries, 0)
        used = usual(squares.sqrt(), self.lambda_n) & usual(purity, self.lambda_s)
        used |= ~used.any(0)
        shares = used.double() / used.sum(0)
        update = updates.by_column(lambda given, own: some.combined(given, own, shares, self.sparse), owner)
        sizes = shares.new_tensor([layer.size for layer in layout])
        trust = torch.zeros_like(norms).index_put((rows,), shares @ sizes / updates.d)
        return Aggregation(update, trust=trust)

    def _cuts(self, updates: Updates, owner: Int64[Tensor, " d"]) -> Float64[Tensor, " n"]:
        large = torch.tensor([layer.dimensions > 1 for layer in updates.layout], device=updates.device)
        columns = large[owner].nonzero().flatten()
        if not len(columns) or not self.sparsity:
            return updates.data_weights.new_full((updates.n,), -1)  # which no size is below
        keep = floor((1 - self.sparsity) * len(columns))
        if not keep:
            raise SettingError(
                f"lasa needs a sparsity that keeps an entry of {len(columns)}, got {self.sparsity}; lower "
                f"aggregator.sparsity."
            )
        return updates.by_row(lambda whole: _cuts(whole, columns, keep))
