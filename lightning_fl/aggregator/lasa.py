"""LASA: sparsify the updates, then keep in each layer those of usual length and usual signs.

Jiahao Xu, Zikai Zhang, Rui Hu. Achieving Byzantine-Resilient Federated Learning via Layer-Adaptive Sparsified Model
Aggregation. WACV 2025. arXiv:2409.01435.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from annotated_types import Ge, Lt
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.aggregator.medians import MedianOf, median_of, usual
from lightning_fl.aggregator.mixing import clipping_scales
from lightning_fl.errors import SettingError
from lightning_fl.ranges import PositiveFloat
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.shares import floored
from lightning_fl.updates.columns import Layout
from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.layout import owners
from lightning_fl.updates.products import kth_smallest
from lightning_fl.updates.threads import in_threads
from lightning_fl.updates.updates import Updates

# Entries at a time; float32 counts so many exactly.
_ENTRIES_CPU, _ENTRIES_GPU = 2**20, 2**24


class _Sparsified:
    """The rows, sparsified, some columns of one tensor at a time.

    Args:
        layout: The tensors.
        cuts: The size up to which a row's entries become 0 in tensors of two or more dimensions, of the rows' type.
    """

    def __init__(self, layout: Layout, cuts: Float[Tensor, " n"]):
        self.layout, self.cuts = layout, cuts[:, None]

    def pieces(
        self, given: Float[Tensor, "n k"], owner: Int64[Tensor, " k"], sparse: bool = True
    ) -> Iterator[tuple[int, Float[Tensor, "n _"]]]:
        """Go through the columns that are here; give each piece with the number of its tensor."""
        width = max(1, (_ENTRIES_CPU if given.device.type == "cpu" else _ENTRIES_GPU) // len(given))
        sizes = owner.bincount(minlength=len(self.layout)).tolist()
        for t, columns in enumerate(given.split(sizes, dim=1)):
            for piece in columns.split(width, dim=1) if columns.shape[1] else []:
                yield t, self._shrunk(piece) if sparse and self.layout[t].dimensions > 1 else piece

    def _shrunk(self, piece: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        if piece.device.type != "cpu":
            return torch.where(piece.abs() > self.cuts, piece, 0)
        # A fifth of that time.
        return torch.stack(
            [F.hardshrink(row, cut) for row, cut in zip(piece, self.cuts.flatten().tolist(), strict=True)]
        )

    def sums(self, given: Float[Tensor, "n k"], owner: Int64[Tensor, " k"]) -> Float64[Tensor, "n t 3"]:
        """Add up squares, signs and sizes of signs over each tensor's columns."""
        found = torch.zeros(len(given), len(self.layout), 3, dtype=torch.float64, device=given.device)
        for t, values in self.pieces(given, owner):
            squares = torch.linalg.vector_norm(values, dim=1, dtype=torch.float64).square()
            signs = values.sign()
            found[:, t] += torch.stack([squares, signs.sum(1), signs.abs_().sum(1)], dim=1)
        return found

    def combined(
        self, given: Float[Tensor, "n k"], owner: Int64[Tensor, " k"], weights: Float64[Tensor, "n t"], sparse: bool
    ) -> Float[Tensor, " k"]:
        """Combine the rows with other weights in each tensor; rows of weight 0 may hold anything."""
        weights = weights.to(given)
        heard = (weights != 0).any(1)
        which = slice(None) if heard.all() else heard
        parts = [weights[which, t] @ values[which] for t, values in self.pieces(given, owner, sparse)]
        return torch.cat(parts) if parts else given.new_empty(0)


def _cuts(rows: Float[Tensor, "m d"], layout: Layout, keep: int) -> Float[Tensor, " m"]:
    """The keep-th largest size of each row's entries in tensors of two or more dimensions."""
    large = [slice(layer.start, layer.stop) for layer in layout if layer.dimensions > 1]
    place = sum(part.stop - part.start for part in large) - keep + 1
    wide = torch.promote_types(rows.dtype, torch.float32)

    def cut(row: Tensor) -> Tensor:
        return kth_smallest(torch.cat([row[part] for part in large]).abs_().to(wide)[None], place)

    return torch.cat(in_threads(cut, rows, rows.device.type)).to(rows)


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
        median: Median of the norms: "middle", the mean of the middle two of an even number, or "lower", as in the code.

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
        some = _Sparsified(layout, self._cuts(updates))
        lengths, signs, entries = updates.over_columns(some.sums, owner).cpu()[rows].unbind(2)
        purity = torch.where(entries > 0, signs / entries, 0)
        used = usual(lengths.sqrt() * scales[:, None], self.lambda_n) & usual(purity, self.lambda_s)
        used |= ~used.any(0)
        shares = used.double() / used.sum(0)
        weights = shares.new_zeros(updates.n, len(layout)).index_put((rows,), shares * scales[:, None])
        update = updates.by_column(lambda given, own: some.combined(given, own, weights, self.sparse), owner)
        sizes = shares.new_tensor([layer.size for layer in layout])
        trust = torch.zeros_like(norms).index_put((rows,), shares @ sizes / updates.d)
        return Aggregation(update, trust=trust)

    def _cuts(self, updates: Updates) -> Float[Tensor, " n"]:
        size = sum(layer.size for layer in updates.layout if layer.dimensions > 1)
        if not size or not self.sparsity:
            return updates.like.new_full((updates.n,), -1)  # which no size is below
        keep = floored(1 - self.sparsity, size)
        if not keep:
            raise SettingError(
                f"lasa needs a sparsity that keeps an entry of {size}, got {self.sparsity}; lower aggregator.sparsity."
            )
        return updates.by_row(lambda whole: _cuts(whole, updates.layout, keep))
