"""The coordinate-wise median.

Dong Yin, Yudong Chen, Kannan Ramchandran, Peter Bartlett. Byzantine-Robust Distributed Learning: Towards Optimal
Statistical Rates. ICML 2018. arXiv:1803.01498, Definition 1.
"""

from typing import Literal, get_args

from jaxtyping import Float
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.errors import check_choice
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.theory.robustness import median_kappa
from lightning_fl.updates.updates import Updates

Middle = Literal["lower", "upper", "mean"]


def median(updates: Float[Tensor, "n d"], middle: Middle = "upper") -> Float[Tensor, " d"]:
    """Take the median of every coordinate.

    Args:
        updates: One update per row.
        middle: Which of the two middle values of an even n: the lower one, the upper one, or their mean.

    Returns:
        The medians.

    Raises:
        SettingError: If updates are not a floating-point matrix, no update is finite, or middle is none of the three.

    Note:
        Yin et al. leave even n open.  torch.median takes the lower value, numpy.median the mean.  The BOBA paper's code
        takes the lower one of the clients' *models*, and a model is the server's less the update: the upper one here.
        An update with NaN or inf is left out.  Data weights play no part, as in the papers.

    >>> import torch
    >>> updates = torch.tensor([[1.0, 8.0], [2.0, 6.0], [4.0, 7.0], [9.0, 5.0]])
    >>> median(updates), median(updates, middle="mean")
    (tensor([4., 7.]), tensor([3.0000, 6.5000]))
    """
    check_choice("median's middle", middle, get_args(Middle))
    return _median(Updates(updates), middle)


def _median(updates: Updates, middle: Middle) -> Float[Tensor, " d"]:
    values = updates.ordered("median")
    lower, upper = (values.n - 1) // 2, values.n // 2
    return values.at(upper if middle == "upper" else lower, lower if middle == "lower" else upper)


class Median(Aggregator):
    """Take the median of every coordinate; see `median` for the setting."""

    exact = True
    moves_with = ("shift", "scale")

    def __init__(self, middle: Middle = "upper"):
        check_choice("median's middle", middle, get_args(Middle))
        self.middle = middle

    def kappa(self, n: int, b: int, equal: bool) -> float | None:
        """Return the bound for b, which any of the middle values keeps; see the base class."""
        return median_kappa(n, b).value

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        return Aggregation(_median(updates, self.middle))
