"""CGE, comparative gradient elimination: average the n - f shortest updates.

Nirupam Gupta, Shuo Liu, Nitin H. Vaidya. Byzantine Fault-Tolerant Distributed Machine Learning Using Stochastic
Gradient Descent (SGD) and Norm-Based Comparative Gradient Elimination (CGE). 2020. arXiv:2008.04699.
"""

from jaxtyping import Float
from torch import Tensor

from lightning_fl.aggregator.base import Weighting
from lightning_fl.aggregator.nearest import nearest_weights
from lightning_fl.ranges import NonNegativeInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.updates import Updates


class Cge(Weighting):
    """Average the n - f updates of smallest Euclidean norm.

    Args:
        f: Byzantine clients tolerated, 0 <= f < n; the paper's results need f < n/2.

    Note:
        The paper adds them up, which is the same up to the learning rate.  Of equally long updates the first count.  An
        update with NaN or inf is left out and counts among the f.  Attackers that are a little shorter than the honest
        clients all pass, so no finite kappa holds.

    The lengths are 5, 1, 2 and 10:

    >>> import torch
    >>> Cge(f=2)(torch.tensor([[3.0, 4.0], [0.0, 1.0], [2.0, 0.0], [6.0, 8.0]]))
    tensor([1.0000, 0.5000])
    """

    least = "f + 1"
    moves_with = ("scale", "rotation")

    def __init__(self, f: NonNegativeInt):
        self.f = f

    def guarantee(self, n: int, n_classes: int) -> str | None:
        """Say whether fewer than half are Byzantine; see the base class."""
        return None if n > 2 * self.f else f"no guarantee: needs n >= 2f + 1, has {n} updates for f = {self.f}"

    def weights(self, updates: Updates, server: ServerOracle) -> Float[Tensor, " n"]:
        """Weigh one round; see the base class."""
        return nearest_weights(updates.squares, self.f, "cge")
