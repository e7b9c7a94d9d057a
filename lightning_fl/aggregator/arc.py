"""Adaptive robust clipping (ARC): clip the longest updates to the length of the longest one that is not clipped.

Youssef Allouah, Rachid Guerraoui, Nirupam Gupta, Ahmed Jellouli, Geovani Rizk, John Stephan. Adaptive Gradient Clipping
for Robust Federated Learning. ICLR 2025. arXiv:2405.14432.
"""

from collections.abc import Collection

from jaxtyping import Float64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregator, Motion
from lightning_fl.aggregator.guarantee import told_fewer
from lightning_fl.aggregator.mixing import Mixing, clipping_scales, finite_shares
from lightning_fl.ranges import NonNegativeInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import finite_rows, still_tolerated
from lightning_fl.updates.updates import Updates


def arc_scales(squares: Float64[Tensor, " n"], f: int) -> Float64[Tensor, " n"]:
    """Compute the factors of the rows from their squared norms; see `Arc`.

    >>> import torch
    >>> arc_scales(torch.tensor([1.0, 4.0, 9.0, 16.0]).double(), f=1)
    tensor([1.0000, 1.0000, 1.0000, 0.7500], dtype=torch.float64)
    """
    n = len(squares)
    rows = finite_rows(squares, "arc")
    f = still_tolerated(f, n, len(rows))
    n_clipped = 2 * f * (len(rows) - f) // len(rows)
    norms = squares.sqrt()
    return clipping_scales(norms, norms[rows].sort(descending=True).values[n_clipped])


class Arc(Mixing):
    """Ask another rule after clipping the k longest updates to C, the (k + 1)-th largest norm: x_i min(1, C / ||x_i||).

    k = floor(2 f (n - f) / n).  As k >= f, a rule whose answer lies among its inputs is never longer than the longest
    honest update (Algorithm 2).

    Args:
        rule: The rule, told the same f.
        f: Byzantine clients tolerated, 0 <= 2f < n.

    Note:
        An update that is not finite counts as one of the f and has data weight 0.

    Here k = floor(2 * 3 / 4) = 1, C = 3; -9 is clipped:

    >>> import torch
    >>> from lightning_fl.aggregator.average import Average
    >>> Arc(Average(), f=1)(torch.tensor([[1.0], [2.0], [-9.0], [3.0]]))
    tensor([0.7500])
    """

    hides_clients = False

    least = "2f + 1"

    def __init__(self, rule: Aggregator, f: NonNegativeInt):
        super().__init__(rule)
        self.f = f

    @property
    def moves_with(self) -> Collection[Motion]:
        """All that the rule moves with, but a shift; see the base class."""
        return [motion for motion in self.rule.moves_with if motion != "shift"]

    def guarantee(self, n: int, n_classes: int) -> str | None:
        """Compare f with the rule's, and pass on what the rule says; see the base class."""
        return told_fewer(self.rule, self.f) or super().guarantee(n, n_classes)

    def mix(
        self, updates: Updates, server: ServerOracle
    ) -> tuple[Float64[Tensor, "m n"], Float64[Tensor, " m"] | None]:
        """Scale the rows; see the base class."""
        shares = finite_shares(updates.data_weights, finite_rows(updates.squares, "arc"))
        return arc_scales(updates.squares, self.f).diag(), shares
