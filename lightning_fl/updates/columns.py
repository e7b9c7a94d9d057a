"""The d columns of updates: which are here, and which belong to which tensor of the model.

All of them are here, unless processes share them or an estimate needs only some.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor


@dataclass(frozen=True)
class Layer:
    """One trained tensor.

    Args:
        name: Name in the model, such as "conv1.weight".
        start: Its first column.
        stop: The one after its last.
        dimensions: How many it has: a bias 1, a matrix 2, a convolution 4.
    """

    name: str
    start: int
    stop: int
    dimensions: int

    @property
    def size(self) -> int:
        """How many columns it has."""
        return self.stop - self.start

    @property
    def module(self) -> str:
        """The module that it belongs to: its name up to the last dot."""
        return self.name.rpartition(".")[0]


Layout = tuple[Layer, ...]


@dataclass(frozen=True)
class Columns:
    """All columns are here.  `exchange.Block` and `adversary.search.estimate.SampledColumns` hold some of them.

    Args:
        d: How many there are.
    """

    d: int

    partial = False
    """Whether some columns are elsewhere, or left out."""

    @property
    def width(self) -> int:
        """How many are here."""
        return self.d

    def own(self, vectors: Tensor) -> Tensor:
        """Cut the columns that are here out of whole vectors."""
        return vectors

    def whole(self, block: Float[Tensor, "*b _"]) -> Float[Tensor, "*b d"]:
        """Put the columns of the same vectors together."""
        return block

    def total(self, sums: Tensor) -> Tensor:
        """Add up sums over columns."""
        return sums

    def stack(self, found: Tensor) -> Tensor:
        """Stack what was found in each block of columns."""
        return found[None]

    def weighed(self, rows: Float[Tensor, "n _"]) -> Float[Tensor, "n _"]:
        """Scale the columns that are here so that squares summed over all blocks are those of all d columns."""
        return rows

    def chosen(self, rows: Float[Tensor, "n _"], index: Int64[Tensor, " k"] | slice) -> Float[Tensor, "n k"]:
        """Take some of the d columns, wherever they are."""
        return rows[:, index]

    def some_of(self, groups: Sequence[Tensor]) -> tuple[Sequence[Tensor], Float64[Tensor, " g"]]:
        """Choose groups of columns to ask about, of many that contribute to a sum.

        Returns:
            The groups to ask about, all of them or some where an estimate is enough, and how many each stands for.
        """
        return groups, torch.ones(len(groups), dtype=torch.float64, device=groups[0].device)
