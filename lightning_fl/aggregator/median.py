"""The coordinate-wise median.

Dong Yin, Yudong Chen, Kannan Ramchandran, Peter Bartlett. Byzantine-Robust Distributed Learning: Towards Optimal
Statistical Rates. ICML 2018. arXiv:1803.01498, Definition 1.
"""

from typing import Literal

from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.theory.robustness import median_kappa
from lightning_fl.updates.ordered import ordered
from lightning_fl.updates.updates import Updates

Middle = Literal["lower", "upper", "mean"]


class Median(Aggregator):
    """Take the median of every coordinate.

    Args:
        middle: Which of the two middle values of an even n: the lower one, the upper one, or their mean.

    Note:
        Yin et al. leave even n open.  torch.median takes the lower value, numpy.median the mean.  The BOBA paper's code
        takes the lower one of the clients' *models*, and a model is the server's less the update: the upper one here.
        An update with NaN or inf is left out.  Data weights play no part, as in the papers.

    >>> import torch
    >>> updates = torch.tensor([[1.0, 8.0], [2.0, 6.0], [4.0, 7.0], [9.0, 5.0]])
    >>> Median()(updates), Median("mean")(updates)
    (tensor([4., 7.]), tensor([3.0000, 6.5000]))
    """

    exact = True
    moves_with = ("shift", "scale")

    def __init__(self, middle: Middle = "upper"):
        self.middle = middle

    def kappa(self, n: int, b: int, equal: bool) -> float | None:
        """Return the bound for b, which any of the middle values keeps; see the base class."""
        return median_kappa(n, b).value

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        values = ordered(updates, "median")
        lower, upper = (values.n - 1) // 2, values.n // 2
        first, last = upper if self.middle == "upper" else lower, lower if self.middle == "lower" else upper
        return Aggregation(values.at(first, last))
