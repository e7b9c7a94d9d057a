"""MinMax and MinSum: as far from the honest mean as honest updates are from each other.

Virat Shejwalkar, Amir Houmansadr. Manipulating the Byzantine: Optimizing Model Poisoning Attacks and Defenses for
Federated Learning. NDSS 2021.

Every distance that the search for gamma asks for follows from the inner products of the honest rows, their mean and
their standard deviation, so d is read once, however long the search.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.ranges import PositiveFloat
from lightning_fl.updates.products import squared_distances
from lightning_fl.updates.updates import Updates

Direction = Literal["inverse_std", "inverse_unit", "inverse_sign"]


class MinMax(Adversary):
    """Send mean + gamma p with the largest gamma for which max_i ||x_b - x_i|| <= max_ij ||x_i - x_j||.

    Args:
        gamma_init: Where the search starts, with steps of half of it that halve; gamma stays below twice it.
        tau: Where the search stops: gamma is less than 2 tau below the bound's.
        direction: p.  None: std, the standard deviation of each coordinate.  "inverse_std": minus that.
            "inverse_unit": against the mean.  "inverse_sign": against the mean's signs.  All are as long as std, so
            that gamma does not depend on the unit of the updates; a mean of 0 has no direction and is sent itself.
        window: See `Adversary`.

    Note:
        The BOBA authors send mean - gamma std of *models* w - eta g, which is mean + gamma std of updates.  Shejwalkar
        and Houmansadr send the three inverse directions of gradients, the unit and sign vectors at their own lengths.

    No farther from 0 than 3 is:

    >>> MinMax()(torch.tensor([[0.0], [3.0], [3.0]]), n_byzantine=1)
    tensor([[3.0000]])
    """

    least_honest = 2

    def __init__(
        self,
        gamma_init: PositiveFloat = 10.0,
        tau: PositiveFloat = 1e-5,
        direction: Direction | None = None,
        **window: Any,
    ):
        super().__init__(**window)
        self.gamma_init = gamma_init
        self.tau = tau
        self.direction = direction

    def measure(self, squares: Float[Tensor, "*k h"]) -> Float[Tensor, "*k"]:
        """Say how far each of some rows is from the honest ones, by its squared distances from these."""
        return squares.amax(-1)

    @override
    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        mean, std = honest.mean_and_std
        along = _along(self.direction, mean, std)
        gram = honest.gram_with(torch.stack([mean, along]))
        squares = squared_distances(gram[:-1, :-1])
        limit, length = torch.stack([self.measure(squares[:-1, :-1]).max(), gram[-1, -1]]).tolist()
        to_mean, slope = torch.stack([squares[-1, :-1], gram[-2, -1] - gram[:-2, -1]]).cpu()  # <mean - x_i, p>

        def near(gamma: float) -> bool:
            return bool(self.measure(to_mean + 2 * gamma * slope + gamma * gamma * length) <= limit)

        return (mean + largest(near, self.gamma_init, self.tau) * along).expand(n_byzantine, -1)


def largest(near: Callable[[float], bool], start: float, tau: float) -> float:
    """Find by halving steps, to within 2 tau, the largest number below twice ``start`` that is near; 0 if none is.

    >>> largest(lambda gamma: gamma <= 3.3, start=4.0, tau=0.5)
    3.0
    """
    tried, found, step = start, 0.0, start / 2
    while 2 * step > tau:  # 2 step is |tried - found|
        if near(tried):
            found, tried = tried, tried + step
        else:
            tried -= step
        step /= 2
    return found


def _along(direction: str | None, mean: Tensor, std: Tensor) -> Tensor:
    """The direction p, as long as std."""
    if direction is None:
        return std
    p = {"inverse_std": std, "inverse_unit": mean, "inverse_sign": mean.sign()}[direction]
    length = torch.linalg.vector_norm(p, dtype=torch.float64)
    scale = torch.linalg.vector_norm(std, dtype=torch.float64) / length if length > 0 else length
    return -(scale * p).to(p)


class MinSum(MinMax):
    """Send mean + gamma p with the largest gamma for which sum_i ||x_b - x_i||^2 <= max_i sum_j ||x_i - x_j||^2.

    Args:
        gamma_init: See `MinMax`.
        tau: See `MinMax`.
        direction: See `MinMax`.

    Note:
        The BOBA authors' code leaves the last honest client out of the outer maximum; here it counts.

    As far from the mean 2 as 0 is, on the other side:

    >>> MinSum()(torch.tensor([[0.0], [3.0], [3.0]]), n_byzantine=1)
    tensor([[4.0000]])
    """

    @override
    def measure(self, squares: Float[Tensor, "*k h"]) -> Float[Tensor, "*k"]:
        return squares.sum(-1)
