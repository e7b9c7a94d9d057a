"""FABA: remove the update farthest from the mean of those left, f times, and average the rest.

Qi Xia, Zeyi Tao, Zijiang Hao, Qun Li. FABA: An Algorithm for Fast Aggregation against Byzantine Attacks in Distributed
Neural Networks. IJCAI 2019.
"""

from jaxtyping import Float, Float64
from torch import Tensor, inf

from lightning_fl.aggregator.base import Weighting
from lightning_fl.ranges import NonNegativeInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import among, finite_rows, still_tolerated
from lightning_fl.updates.updates import Updates


def faba_weights(gram: Float64[Tensor, "n n"], f: int) -> Float64[Tensor, " n"]:
    """Weigh the rows that are left equally, from inner products about any origin; see `Faba`."""
    n = len(gram)
    rows = finite_rows(gram.diagonal(), "faba")
    inner = among(gram, rows)
    left = inner.new_ones(len(rows))
    for _ in range(still_tolerated(f, n, len(rows))):
        away = inner.diagonal() - 2 * (inner @ left) / left.sum()  # squared distance from the mean, up to a constant
        left[away.masked_fill(left == 0, -inf).argmax()] = 0
    return gram.new_zeros(n).index_put((rows,), left / left.sum())


class Faba(Weighting):
    """Average what is left after removing f times the update farthest from the mean of those left (Algorithm 1).

    Args:
        f: Byzantine clients tolerated, 0 <= 2f < n.

    Note:
        An update with NaN or inf is left out first and counts among the f.

    The means of those left are 8 and 2.5; from the first alone, 0 would be the next to go:

    >>> import torch
    >>> Faba(f=2)(torch.tensor([[0.0], [1.0], [2.0], [7.0], [30.0]]))
    tensor([1.])
    """

    least = "2f + 1"
    exact = True

    def __init__(self, f: NonNegativeInt):
        self.f = f

    def weights(self, updates: Updates, server: ServerOracle) -> Float[Tensor, " n"]:
        """Weigh one round; see the base class."""
        return faba_weights(updates.centred.gram, self.f)
