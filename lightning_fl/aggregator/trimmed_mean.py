"""The coordinate-wise trimmed mean.

Dong Yin, Yudong Chen, Kannan Ramchandran, Peter Bartlett. Byzantine-Robust Distributed Learning: Towards Optimal
Statistical Rates. ICML 2018. arXiv:1803.01498, Definition 2.
"""

from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.ranges import NonNegativeInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.theory.robustness import trimmed_mean_kappa
from lightning_fl.updates.finite import still_tolerated
from lightning_fl.updates.ordered import ordered
from lightning_fl.updates.updates import Updates


class TrimmedMean(Aggregator):
    """Average every coordinate without its f smallest and its f largest values.

    Args:
        f: Byzantine clients tolerated, 0 <= 2f < n (the paper's beta n).

    Note:
        An update with NaN or inf is left out and counts among the f: with k of them, f - k values (at least 0) go on
        either side.

    >>> import torch
    >>> TrimmedMean(f=1)(torch.tensor([[1.0, 8.0], [2.0, 6.0], [4.0, 7.0], [90.0, -5.0]]))
    tensor([3.0000, 6.5000])
    """

    least = "2f + 1"
    exact = True
    moves_with = ("shift", "scale")

    def __init__(self, f: NonNegativeInt):
        self.f = f

    def kappa(self, n: int, b: int, equal: bool) -> float | None:
        """Return the bound for f; see the base class."""
        return trimmed_mean_kappa(n, self.f).value if b <= self.f else None

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        values = ordered(updates, "trimmed_mean")
        first = still_tolerated(self.f, updates.n, values.n)
        return Aggregation(values.mean(first, values.n - first))
