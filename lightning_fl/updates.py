"""What the clients sent this round, and the two passes over it that every weighting needs.

Nearly every rule of the field is a *weighting*: its output is sum_i a_i x_i, and the a_i depend only on inner products
between rows.  So the d columns are read once for the Gram matrix and once for the combination, whatever the rule
iterates in between.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from lightning_fl.errors import DivergedError, SettingError

# Columns converted to float64 at a time: 115 x 4096 doubles are 4 MB, which a core's cache holds; a GPU wants more.
_COLUMNS_CPU, _COLUMNS_GPU = 2**12, 2**17
# Rows of the Gram matrix at a time.
_ROWS = 32


def check_rows(rows: Tensor, name: str) -> None:
    """Check that rows are what every rule takes.

    Args:
        rows: Should be a floating-point matrix of at least one row and one column.
        name: What to call it in the error.

    Raises:
        SettingError: If they are not.
    """
    if rows.ndim != 2 or 0 in rows.shape:
        raise SettingError(
            f"{name} must be a matrix (n, d) with n >= 1 and d >= 1, got shape {tuple(rows.shape)}; "
            f"stack one flat vector per row."
        )
    if not rows.dtype.is_floating_point:
        raise SettingError(f"{name} must be floating point, got {rows.dtype}; convert with {name}.float().")


def _float64_columns(*blocks: Tensor) -> Iterator[Tensor]:
    """Stack the blocks, some columns at a time."""
    width = _COLUMNS_CPU if blocks[0].device.type == "cpu" else _COLUMNS_GPU
    for start in range(0, blocks[0].shape[1], width):
        yield torch.cat([block[:, start : start + width].double() for block in blocks])


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
    n = sum(len(block) for block in blocks)
    gram = blocks[0].new_zeros(n, n, dtype=torch.float64)
    for columns in _float64_columns(*blocks):
        for i in range(0, n, _ROWS):  # on and below the diagonal, where half of the work is
            rows = slice(i, i + _ROWS)
            gram[rows, : i + _ROWS] += columns[rows] @ columns[: i + _ROWS].T  # addmm_ into the sum rounds more
    return gram.tril() + gram.tril(-1).T


def finite_rows(squares: Float64[Tensor, " n"], rule: str) -> Int64[Tensor, " m"]:
    """Find the rows that a robust rule may look at: those that hold only finite numbers.

    The others count among the f that a rule tolerates, and get weight 0.

    Args:
        squares: ||x_i||^2, such as the Gram matrix's diagonal, or anything else that is finite where the row is.
        rule: Who asks, for the error.

    Returns:
        Their numbers, ascending.

    Raises:
        DivergedError: If there is none.
    """
    rows = squares.isfinite().nonzero().flatten()
    if not len(rows):
        raise DivergedError(f"{rule} needs at least one update without NaN and inf, got none among {len(squares)}.")
    return rows


def squared_distances(gram: Float64[Tensor, "n n"]) -> Float64[Tensor, "n n"]:
    """Compute ||x_i - x_j||^2 from finite inner products.

    >>> squared_distances(gram_matrix(torch.tensor([[0.0, 0.0], [3.0, 4.0]])))
    tensor([[ 0., 25.],
            [25.,  0.]], dtype=torch.float64)
    """
    lengths = gram.diagonal()
    return (lengths[:, None] + lengths - 2 * gram).clamp(min=0).fill_diagonal_(0)


class Updates:
    """The rows of one round with their data weights and, once somebody asks, their Gram matrix.

    Args:
        rows: One update a row.  Updates are pseudo-gradients: the server subtracts them.
        data_weights: Share of each client in the data, at least 0 with a positive sum; normalised to sum 1.
            None: equal shares.
        ids: Number of each client, for a rule that remembers clients.  None: the rows are not single clients.

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
    ):
        check_rows(rows, "updates")
        self.rows = rows
        self.ids = ids
        self.n, self.d = rows.shape
        if data_weights is None:
            data_weights = rows.new_ones(self.n, dtype=torch.float64)
        weights = data_weights.to(rows.device, torch.float64)
        if weights.shape != (self.n,) or not (weights.isfinite().all() and (weights >= 0).all() and weights.sum() > 0):
            raise SettingError(
                f"weights must be {self.n} finite numbers >= 0 with a positive sum, one for each row of updates, "
                f"got {tuple(weights.shape)}: {weights.tolist()[:5]}..."
            )
        self.data_weights = weights / weights.sum()

    @cached_property
    def gram(self) -> Float64[Tensor, "n n"]:
        """Inner products between the rows; see `gram_matrix`."""
        return gram_matrix(self.rows)

    def gram_with(self, extra: Float[Tensor, "k d"]) -> Float64[Tensor, "m m"]:
        """Inner products between the rows followed by k further rows (of the server), in one pass over d."""
        check_rows(extra, "server rows")
        if extra.shape[1] != self.d:
            raise SettingError(f"server rows must have the updates' length {self.d}, got {extra.shape[1]}.")
        gram = gram_matrix(self.rows, extra.to(self.rows.device))
        self.gram = gram[: self.n, : self.n]
        return gram

    @cached_property
    def squares(self) -> Float64[Tensor, " n"]:
        """||x_i||^2: the Gram matrix's diagonal, for rules that need no more of it."""
        squares = self.rows.new_zeros(self.n, dtype=torch.float64)
        for columns in _float64_columns(self.rows):
            squares += columns.square().sum(1)
        return squares

    def products(self, vector: Float[Tensor, " d"]) -> Float64[Tensor, " n"]:
        """Compute <x_i, vector>."""
        products = self.rows.new_zeros(self.n, dtype=torch.float64)
        for columns in _float64_columns(self.rows, vector[None]):
            products += columns[:-1] @ columns[-1]
        return products

    def combine(self, weights: Float[Tensor, " n"]) -> Float[Tensor, " d"]:
        """Compute sum_i weights_i rows_i; a row of weight 0 has no influence, whatever it holds."""
        weights = weights.to(self.rows)
        combined = (weights[None] @ self.rows)[0]  # a matrix product has more threads than one with a vector
        if not combined.sum().isfinite():  # 0 * inf is NaN: leave those rows out
            used = weights != 0
            combined = weights[used] @ self.rows[used]
        return combined


def flatten(tensors: Iterable[Tensor]) -> Float[Tensor, " d"]:
    """Concatenate tensors into one flat vector."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def unflatten(vector: Float[Tensor, "*batch d"], like: Sequence[Tensor]) -> list[Tensor]:
    """Cut a flat vector (or a batch of them) into views shaped like the given tensors."""
    parts = vector.split([tensor.numel() for tensor in like], dim=-1)
    return [part.view((*vector.shape[:-1], *tensor.shape)) for part, tensor in zip(parts, like, strict=True)]


def trainable(model: nn.Module) -> dict[str, Tensor]:
    """The parameters that clients train and upload, by name, detached."""
    return {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}
