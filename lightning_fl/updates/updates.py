"""What the clients sent this round, and the two passes over it that every weighting needs.

Nearly every rule of the field is a *weighting*: its output is sum_i a_i x_i, and the a_i depend only on inner products
between rows.  So the d columns are read once for the inner products and once for the combination, whatever the rule
iterates in between.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Float64, Int64, Shaped
from torch import Tensor

from lightning_fl.errors import SettingError
from lightning_fl.updates.columns import Columns, Layer, Layout
from lightning_fl.updates.products import (
    LONGEST,
    Centred,
    as_broken,
    centred_products,
    float64_columns,
    gram_matrix,
    squared_distances,
)
from lightning_fl.updates.rows import (
    as_shares,
    broken_rows,
    check_rows,
    combine_rows,
    mean_and_squares,
    row_norms,
    weighted_sum,
)

# Whole rows held at a time where processes hold columns.
_WHOLE_ROWS = 16


@dataclass(frozen=True)
class Combination:
    """sum_i a_i x_i of the rows of a round and sum_k c_k s_k of further ones, computed when first needed.

    A search that needs only the distance of a rule's answer from some point never computes it.

    Args:
        updates: x.
        weights: a.
        extra: s, rows of the server.  None: there are none.
        extra_weights: c.

    >>> updates, own = Updates(torch.tensor([[1.0, 2.0], [3.0, 6.0]])), torch.tensor([[0.0, 4.0]])
    >>> Combination(updates, torch.tensor([0.5, 0.5]), own, torch.tensor([0.25])).vector
    tensor([2., 5.])
    """

    updates: "Updates"
    weights: Float[Tensor, " n"]
    extra: Float[Tensor, "k d"] | None = None
    extra_weights: Float[Tensor, " k"] | None = None

    @cached_property
    def vector(self) -> Float[Tensor, " d"]:
        """The combination itself."""
        combined = self.updates.combine(self.weights)
        if self.extra is not None and self.extra_weights is not None and self.extra_weights.any():
            combined = combined + self.extra_weights.to(self.extra, non_blocking=True) @ self.extra
        return combined

    @property
    def coefficients(self) -> Float64[Tensor, " m"]:
        """Of the rows, followed by the further ones."""
        weights = self.weights.to(self.updates.data_weights)
        return weights if self.extra_weights is None else torch.cat([weights, self.extra_weights.to(weights)])

    @property
    def centred(self) -> Centred:
        """Inner products between all of these."""
        return self.updates.centred if self.extra is None else self.updates.centred_with(self.extra)


class Updates:
    """The rows of one round with their data weights and, once they are needed, their inner products.

    A row longer than 1e75, which float64 alone can hold, has the inner products, lengths and distances of one of inf.

    Numbers of whole rows (data weights, lengths, inner products) are on the CPU, wherever the rows are: a GPU is waited
    for once to bring them there, and what a rule makes of them, step by step, waits for nothing.

    A subclass whose rows are made of others' rows sets n, d, data_weights, ids, held and layout, and provides `here`;
    all else follows from these, and it overrides what it can compute faster.

    Args:
        rows: One update per row.  Updates are pseudo-gradients: the server subtracts them.  Autograd does not follow
            them through a rule.
        data_weights: Share of each client in the data, at least 0 with a positive sum; normalised to sum 1.
            None: equal shares.
        ids: Number of each client, for a rule that remembers clients.  None: the rows are not single clients.
        columns: Which columns of the rows these are.  None: all.
        layout: Which columns belong to which tensor of the model.  None: all to one, of one dimension.

    Raises:
        SettingError: If rows are not a floating-point matrix, or the weights do not fit them.

    >>> updates = Updates(torch.tensor([[1.0, 2.0], [3.0, 6.0]]), torch.tensor([3.0, 1.0]))
    >>> updates.combine(updates.data_weights)
    tensor([1.5000, 3.0000])
    """

    def __init__(
        self,
        rows: Float[Tensor, "n d"],
        data_weights: Float[Tensor, " n"] | None = None,
        ids: Sequence[int] | None = None,
        columns: Columns | None = None,
        layout: Layout | None = None,
    ):
        if columns is None or not columns.partial:
            check_rows(rows, "updates")
        self._here, self.ids = rows.detach(), ids
        self.held = Columns(rows.shape[1]) if columns is None else columns
        """Which columns are here; sums over columns go through this."""
        self.n, self.d = len(rows), self.held.d
        self.data_weights = as_shares(data_weights, self.n)
        self._positive = self.data_weights if data_weights is None or (data_weights > 0).all() else None
        self.layout = layout or (Layer("", 0, self.d, 1),)
        """Which of all d columns belong to which tensor of the model."""

    _positive: Tensor | None = None
    """The data weights, if all of them are known to be above 0."""

    mixture: "tuple[Updates, Float64[Tensor, 'n m']] | None" = None
    """The rows that these are mixed from, and the matrix; see `lightning_fl.updates.mixed`."""

    @property
    def here(self) -> Float[Tensor, "n _"]:
        """The rows, or those of their columns that are here."""
        return self._here

    @cached_property
    def rows(self) -> Float[Tensor, "n d"]:
        """All columns of the rows, put together once somebody asks."""
        return self.held.whole(self.here)

    def _marked(self) -> Float[Tensor, "n _"]:
        """The columns here, NaN in rows that hold NaN or inf in some column elsewhere."""
        if not self.held.partial:
            return self.here
        broken = self.held.total(broken_rows(self.here).double()) > 0
        return self.here.masked_fill(broken[:, None], torch.nan) if broken.any() else self.here

    @property
    def device(self) -> torch.device:
        """Where the rows lie."""
        return self.here.device

    @property
    def dtype(self) -> torch.dtype:
        """Of the rows."""
        return self.here.dtype

    @property
    def like(self) -> Float[Tensor, "n d"]:
        """A matrix of the rows' shape, type and device that needs no memory and holds nothing of use."""
        return torch.zeros(1, dtype=self.dtype, device=self.device).expand(self.n, self.d)

    def by_column(
        self, function: Callable[..., Tensor], *vectors: Shaped[Tensor, " d"], mark_broken: bool = False
    ) -> Float[Tensor, "*b d"]:
        """Apply a function that treats every column by itself, on each process to the columns that it holds.

        Args:
            function: Maps (n, k) columns of the rows, and of each of the vectors, to (k,) or (b, k) numbers.
            vectors: What else it takes, each whole.
            mark_broken: Whether a row that holds NaN or inf in some column is NaN in all of them, for a function that
                leaves such rows out.

        Returns:
            Its values for all d columns.

        >>> Updates(torch.tensor([[1.0, 2.0], [3.0, 6.0]])).by_column(lambda rows: rows.mean(0))
        tensor([2., 4.])
        """
        return self.held.whole(function(self._marked() if mark_broken else self.here, *map(self.held.own, vectors)))

    def over_columns(self, function: Callable[..., Tensor], *vectors: Shaped[Tensor, " d"]) -> Tensor:
        """Apply a function that sums over columns; see `by_column`.

        Args:
            function: Maps (n, k) columns of the rows, and of each of the vectors, to sums over them.
            vectors: What else it takes, each whole.

        Returns:
            Its sums over all d columns.

        >>> Updates(torch.tensor([[1.0, 2.0], [3.0, 6.0]])).over_columns(lambda rows: rows.sum(1))
        tensor([3., 9.])
        """
        return self.held.total(function(self.here, *map(self.held.own, vectors)))

    def by_row(self, function: Callable[[Tensor], Tensor]) -> Float[Tensor, " n"]:
        """Apply a function that treats every whole row by itself, and gives one number for each.

        Of several processes each holds some whole rows at a time.

        >>> Updates(torch.tensor([[1.0, 2.0], [3.0, 6.0]])).by_row(lambda rows: rows.sum(1))
        tensor([3., 9.])
        """
        if not self.held.partial:
            return function(self.here)
        blocks = torch.arange(self.n, device=self.device).split(_WHOLE_ROWS)
        return torch.cat([function(self.by_column(lambda rows, own=own: rows[own])) for own in blocks])

    @property
    def whole(self) -> "Updates":
        """The updates in all columns, for a rule that cannot go by some of them; see `adversary.search.estimate`."""
        return self

    def by_block(self, function: Callable[[Tensor], Tensor], mark_broken: bool = False) -> Tensor:
        """Apply a function to the columns of each process; see `by_column`.

        Returns:
            Its values, stacked: one for each process.
        """
        return self.held.stack(function(self.held.weighed(self._marked() if mark_broken else self.here)))

    @cached_property
    def gram(self) -> Float64[Tensor, "n n"]:
        """Inner products between the rows; see `gram_matrix`."""
        return self._products()

    def _products(self, *extra: Tensor) -> Float64[Tensor, "m m"]:
        gram = self.held.total(gram_matrix(self.here, *extra)).cpu()
        return as_broken(gram, gram.diagonal()) if self.dtype == torch.float64 else gram

    @cached_property
    def centred(self) -> Centred:
        """Inner products about the middle of the rows; see `centred_products`."""
        return centred_products(self.here, total=self.held.total)

    @cached_property
    def distances(self) -> Float64[Tensor, "n n"]:
        """||x_i - x_j||^2, whatever offset the rows share; 0 where it is rounding, inf for a row with NaN or inf."""
        return squared_distances(self.centred.gram).nan_to_num_(nan=torch.inf, posinf=torch.inf)

    def gram_with(self, extra: Float[Tensor, "k d"]) -> Float64[Tensor, "m m"]:
        """Inner products between the rows followed by k further rows (of the server), in one pass over d."""
        gram = self._products(self._checked(extra))
        self.gram = gram[: self.n, : self.n]
        return gram

    def centred_with(self, extra: Float[Tensor, "k d"]) -> Centred:
        """Inner products between the rows followed by k further rows, about the middle of the rows; as `gram_with`."""
        centred = centred_products(self.here, self._checked(extra), total=self.held.total)
        self.centred = centred[: self.n]
        return centred

    def _checked(self, extra: Tensor) -> Float[Tensor, "k _"]:
        check_rows(extra, "server rows")
        if extra.shape[1] != self.d:
            raise SettingError(f"server rows must have the updates' length {self.d}, got {extra.shape[1]}.")
        return self.held.own(extra.to(self.device))

    def norms(self, p: float = 2.0) -> Float64[Tensor, " n"]:
        """Compute ||x_i||_p for p = 1, 2 or inf at the speed of float32; see `row_norms`."""
        if self.held.partial:
            parts = self.by_block(lambda rows: row_norms(rows, p).to(rows.device)).cpu()
            norms = torch.linalg.vector_norm(parts, p, dim=0)
        else:
            norms = row_norms(self.here, p)
        return norms.where(norms <= LONGEST, torch.inf)

    @property
    def lengths(self) -> Float64[Tensor, " n"]:
        """||x_i||, from what has been asked for already if that tells, else `norms`."""
        if "centred" in vars(self):
            about = self.centred
            squares = (about.gram.diagonal() + 2 * about.offset + about.square).clamp(min=0)
            return squares.sqrt().where(squares <= LONGEST**2, torch.inf)
        if "gram" in vars(self):
            return self.gram.diagonal().sqrt()
        return self.squares.sqrt() if "squares" in vars(self) else self.norms()

    @cached_property
    def squares(self) -> Float64[Tensor, " n"]:
        """||x_i||^2: the Gram matrix's diagonal, for rules that need no more of it."""
        squares = self.here.new_zeros(self.n, dtype=torch.float64)
        for columns in float64_columns(self.here):
            squares += columns.square().sum(1)
        squares = self.held.total(squares).cpu()
        return squares.where(squares <= LONGEST**2, torch.inf)

    def products(self, vector: Float[Tensor, " d"]) -> Float64[Tensor, " n"]:
        """Compute <x_i, vector>."""
        products = self.here.new_zeros(self.n, dtype=torch.float64)
        for columns in float64_columns(self.here, self.held.own(vector)[None]):
            products += columns[:-1] @ columns[-1]
        return self.held.total(products).cpu()

    def combine(self, weights: Float[Tensor, " n"]) -> Float[Tensor, " d"]:
        """Compute sum_i weights_i rows_i; a row of weight 0 has no influence, whatever it holds."""
        if weights is self._positive:
            return self.by_column(lambda rows: weighted_sum(rows, weights.to(rows, non_blocking=True)))
        return self.by_column(lambda rows: combine_rows(rows, weights.to("cpu", rows.dtype)))

    def combination(
        self,
        weights: Float[Tensor, " n"],
        extra: Float[Tensor, "k d"] | None = None,
        extra_weights: Float[Tensor, " k"] | None = None,
    ) -> Combination:
        """Note down sum_i weights_i rows_i and what further rows (of the server) add, if the vector is needed."""
        return Combination(self, weights, extra, extra_weights)

    @cached_property
    def moments(self) -> tuple[Float[Tensor, " _"], Float[Tensor, " _"]]:
        """Mean and sum of squared differences of each column here, without data weights; see `mean_and_squares`."""
        return mean_and_squares(self.here)

    @property
    def known_moments(self) -> tuple[Float[Tensor, " _"], Float[Tensor, " _"]] | None:
        """The same, if it has been asked for."""
        return vars(self).get("moments")

    @property
    def mean_and_std(self) -> tuple[Float[Tensor, " d"], Float[Tensor, " d"]]:
        """Mean and sample standard deviation (divisor n - 1) of each column, without data weights.

        >>> Updates(torch.tensor([[1.0, 2.0], [3.0, 2.0], [5.0, 8.0]])).mean_and_std
        (tensor([3., 4.]), tensor([2.0000, 3.4641]))
        """
        mean, squares = self.moments
        mean, std = self.held.whole(torch.stack([mean, (squares / (self.n - 1)).sqrt_()]))
        return mean, std

    def unmixed(self, matrix: Tensor) -> tuple["Updates", Tensor]:
        """Rows that are not mixed, and the matrix that makes of them what the given one makes of these."""
        return self, matrix

    def columns(self, index: Int64[Tensor, " k"] | slice) -> "Updates":
        """Some columns of the rows, with the same data weights and ids."""
        return Updates(self.held.chosen(self.here, index), self.data_weights, self.ids)
