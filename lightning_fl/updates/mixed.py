"""Rows that are mixed from those of the clients."""

from collections.abc import Sequence
from functools import cached_property

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from lightning_fl.updates.combinations import mixed_centred, mixed_gram
from lightning_fl.updates.products import Centred
from lightning_fl.updates.rows import as_shares, which_finite
from lightning_fl.updates.updates import Combination, Updates


def mix(updates: Updates, matrix: Float[Tensor, "m n"], data_weights: Float[Tensor, " m"] | None = None) -> Updates:
    """Mix rows, y_i = sum_j matrix_ij x_j, without computing a y: all that a weighting asks follows from the x.

    <y_i, y_k> = (M G M^T)_ik, and weights a of the y are the weights M^T a of the x.  A mixed row is not finite if
    a non-finite row has a share in it, however huge the finite ones are.

    Args:
        updates: The rows.
        matrix: M.  A diagonal one scales them, which remain those of their clients.
        data_weights: Data weights of the mixed rows.  None: as before for a diagonal matrix, else equal shares.

    Returns:
        The mixed rows; ``ids`` is None unless M is diagonal.  ``rows`` is computed on demand.

    >>> mean = mix(Updates(torch.tensor([[0.0, 1.0], [4.0, 1.0]])), torch.tensor([[0.5, 0.5]]))
    >>> mean.gram, mean.rows
    (tensor([[5.]], dtype=torch.float64), tensor([[2., 1.]]))
    """
    matrix = matrix.to(updates.data_weights)
    scales = matrix.shape[0] == matrix.shape[1] and torch.equal(matrix, matrix.diagonal().diag())
    if data_weights is None and scales:
        data_weights = updates.data_weights
    return _Mixed(*updates.unmixed(matrix), data_weights, updates.ids if scales else None)


class _Mixed(Updates):
    """The rows M X of the rows X of others; see `mix`."""

    def __init__(self, source: Updates, matrix: Tensor, data_weights: Tensor | None, ids: Sequence[int] | None):
        self.mixture = self.source, self.matrix = source, matrix
        self.ids, self.held, self.layout = ids, source.held, source.layout
        self.n, self.d = len(matrix), source.d
        self.data_weights = as_shares(data_weights, self.n)

    @cached_property
    def rows(self) -> Float[Tensor, "n d"]:
        return self._mix(self.source.rows)

    @property
    def device(self) -> torch.device:
        return self.source.device

    @property
    def dtype(self) -> torch.dtype:
        return self.source.dtype

    @cached_property
    def here(self) -> Float[Tensor, "n _"]:
        return self._mix(self.source.here) if self.held.partial else self.rows

    @property
    def whole(self) -> Updates:
        source = self.source.whole
        return self if source is self.source else _Mixed(source, self.matrix, self.data_weights, self.ids)

    def _mix(self, rows: Tensor) -> Tensor:
        matrix = self.matrix
        mixed = matrix.to(rows, non_blocking=True) @ rows
        if not mixed.sum().isfinite():  # 0 * inf is NaN: leave those rows out
            finite = torch.tensor(which_finite(rows))
            mixed = matrix[:, finite].to(rows) @ rows[finite]
            mixed[(matrix[:, ~finite] != 0).any(1)] = torch.nan
        return mixed

    @cached_property
    def gram(self) -> Float64[Tensor, "n n"]:
        return mixed_gram(self.source.gram, self.matrix)

    @cached_property
    def centred(self) -> Centred:
        return mixed_centred(self.source.centred, self.matrix, self.n)

    def gram_with(self, extra: Float[Tensor, "k d"]) -> Float64[Tensor, "m m"]:
        gram = mixed_gram(self.source.gram_with(extra), self._beside(extra))
        self.gram = gram[: self.n, : self.n]
        return gram

    def centred_with(self, extra: Float[Tensor, "k d"]) -> Centred:
        centred = mixed_centred(self.source.centred_with(extra), self._beside(extra), self.n)
        self.centred = centred[: self.n]
        return centred

    def _beside(self, extra: Tensor) -> Tensor:
        return torch.block_diag(self.matrix, torch.eye(len(extra)).to(self.matrix))

    @cached_property
    def squares(self) -> Float64[Tensor, " n"]:
        return self.gram.diagonal()

    def products(self, vector: Float[Tensor, " d"]) -> Float64[Tensor, " n"]:
        products = self.source.products(vector)
        broken = ~products.isfinite()
        mixed = self.matrix @ products.masked_fill(broken, 0)
        return mixed.masked_fill((self.matrix[:, broken] != 0).any(1), torch.nan)

    def combine(self, weights: Float[Tensor, " n"]) -> Float[Tensor, " d"]:
        return self.source.combine(weights.to(self.matrix) @ self.matrix)

    def combination(
        self,
        weights: Float[Tensor, " n"],
        extra: Float[Tensor, "k d"] | None = None,
        extra_weights: Float[Tensor, " k"] | None = None,
    ) -> Combination:
        return self.source.combination(weights.to(self.matrix) @ self.matrix, extra, extra_weights)

    def columns(self, index: Int64[Tensor, " k"] | slice) -> Updates:
        return _Mixed(self.source.columns(index), self.matrix, self.data_weights, self.ids)

    def unmixed(self, matrix: Tensor) -> tuple[Updates, Tensor]:
        return self.source, matrix @ self.matrix
