"""MinMax and MinSum: as far from the honest mean as honest updates are from each other.

Virat Shejwalkar, Amir Houmansadr. Manipulating the Byzantine: Optimizing Model Poisoning Attacks and Defenses for
Federated Learning. NDSS 2021.

Every distance that the search for gamma asks for follows from the inner products of the honest rows, their mean and
their standard deviation, so d is read once, however long the search.
"""

from collections.abc import Callable
from math import inf
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.adversary.spread import check_spread, spread_of
from lightning_fl.errors import SettingError, check_choice
from lightning_fl.updates.products import squared_distances
from lightning_fl.updates.updates import Updates

Direction = Literal["inverse_std", "inverse_unit", "inverse_sign"]

# What of the squared distances from a row to the honest ones counts.
_MEASURES: dict[str, Callable[[Tensor], Tensor]] = {
    "min_max": lambda squares: squares.amax(-1),
    "min_sum": lambda squares: squares.sum(-1),
}


def min_max(
    honest: Float[Tensor, "h d"],
    n_byzantine: int,
    gamma_init: float = 10.0,
    tau: float = 1e-5,
    direction: Direction | None = None,
) -> Float[Tensor, "b d"]:
    """Send mean + gamma p with the largest gamma for which max_i ||x_b - x_i|| <= max_ij ||x_i - x_j||.

    Args:
        honest: One honest update per row, at least 2.
        n_byzantine: How many copies to send.
        gamma_init: Where the search starts, above 0, with steps of half of it that halve; gamma stays below twice it.
        tau: Where the search stops, above 0: gamma is less than 2 tau below the bound's.
        direction: p.  None: std, the standard deviation of each coordinate.  "inverse_std": minus that.
            "inverse_unit": against the mean.  "inverse_sign": against the mean's signs.  All are as long as std, so
            that gamma does not depend on the unit of the updates; a mean of 0 has no direction and is sent itself.

    Returns:
        The forged updates, one vector expanded to n_byzantine rows.

    Raises:
        SettingError: If there are fewer than 2 honest updates, or a setting is out of range.

    Note:
        The BOBA authors send mean - gamma std of *models* w - eta g, which is mean + gamma std of updates.  Shejwalkar
        and Houmansadr send the three inverse directions of gradients, the unit and sign vectors at their own lengths.

    No farther from 0 than 3 is:

    >>> min_max(torch.tensor([[0.0], [3.0], [3.0]]), n_byzantine=1)
    tensor([[3.0000]])
    """
    return _forge("min_max", Updates(honest), n_byzantine, gamma_init, tau, direction)


def min_sum(
    honest: Float[Tensor, "h d"],
    n_byzantine: int,
    gamma_init: float = 10.0,
    tau: float = 1e-5,
    direction: Direction | None = None,
) -> Float[Tensor, "b d"]:
    """Send mean + gamma p with the largest gamma for which sum_i ||x_b - x_i||^2 <= max_i sum_j ||x_i - x_j||^2.

    Args:
        honest: See `min_max`.
        n_byzantine: See `min_max`.
        gamma_init: See `min_max`.
        tau: See `min_max`.
        direction: See `min_max`.

    Returns:
        The forged updates, one vector expanded to n_byzantine rows.

    Raises:
        SettingError: As `min_max`.

    Note:
        The BOBA authors' code leaves the last honest client out of the outer maximum; here it counts.

    As far from the mean 2 as 0 is, on the other side:

    >>> min_sum(torch.tensor([[0.0], [3.0], [3.0]]), n_byzantine=1)
    tensor([[4.0000]])
    """
    return _forge("min_sum", Updates(honest), n_byzantine, gamma_init, tau, direction)


def _forge(
    attack: str,
    honest: Updates,
    n_byzantine: int,
    gamma_init: float,
    tau: float,
    direction: str | None,
) -> Tensor:
    """Forge a row whose measure of squared distances to the honest rows is at most the largest honest one."""
    _check(attack, gamma_init, tau, direction)
    measure = _MEASURES[attack]
    mean, std = spread_of(honest, attack)
    along = _along(direction, mean, std)
    gram = honest.gram_with(torch.stack([mean, along]))
    squares = squared_distances(gram[:-1, :-1])
    limit, length = torch.stack([measure(squares[:-1, :-1]).max(), gram[-1, -1]]).tolist()
    to_mean, slope = torch.stack([squares[-1, :-1], gram[-2, -1] - gram[:-2, -1]]).cpu()  # <mean - x_i, p>

    gamma, found, step = gamma_init, 0.0, gamma_init / 2
    while 2 * step > tau:  # 2 step is |gamma - found|
        if measure(to_mean + 2 * gamma * slope + gamma * gamma * length) <= limit:
            found = gamma
            gamma += step
        else:
            gamma -= step
        step /= 2
    return (mean + found * along).expand(n_byzantine, -1)


def _along(direction: str | None, mean: Tensor, std: Tensor) -> Tensor:
    """The direction p, as long as std."""
    if direction is None:
        return std
    p = {"inverse_std": std, "inverse_unit": mean, "inverse_sign": mean.sign()}[direction]
    length = torch.linalg.vector_norm(p, dtype=torch.float64)
    scale = torch.linalg.vector_norm(std, dtype=torch.float64) / length if length > 0 else length
    return -(scale * p).to(p)


def _check(attack: str, gamma_init: float, tau: float, direction: str | None) -> None:
    if not (0 < gamma_init < inf and 0 < tau < inf):
        raise SettingError(f"{attack} needs finite gamma_init > 0 and tau > 0, got {gamma_init} and {tau}.")
    if direction is not None:
        check_choice(f"{attack}'s direction", direction, get_args(Direction))


class MinMax(Adversary):
    """Stay within the largest distance between honest updates; see `min_max`."""

    _measure = "min_max"

    def __init__(self, gamma_init: float = 10.0, tau: float = 1e-5, direction: Direction | None = None):
        _check(self._measure, gamma_init, tau, direction)
        self.gamma_init = gamma_init
        self.tau = tau
        self.direction = direction

    def check(self, n_honest: int, n_byzantine: int, n_classes: int) -> None:
        """Check that there is a spread; see the base class."""
        check_spread(self._measure, n_honest)

    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        """Forge one round's updates; see the base class."""
        return _forge(self._measure, honest, n_byzantine, self.gamma_init, self.tau, self.direction)


class MinSum(MinMax):
    """Stay within the largest sum of squared distances of an honest update to the others; see `min_sum`."""

    _measure = "min_sum"
