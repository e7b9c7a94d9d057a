"""LIE, "a little is enough": hide in the spread of the honest updates.

Gilad Baruch, Moran Baruch, Yoav Goldberg. A Little Is Enough: Circumventing Defenses For Distributed Learning.
NeurIPS 2019. arXiv:1902.06156.
"""

from statistics import NormalDist

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.adversary.gaussian import gaussian
from lightning_fl.adversary.spread import check_spread, spread_of
from lightning_fl.errors import SettingError, check_finite
from lightning_fl.updates import Updates


def lie_factor(h: int, b: int) -> float:
    """Compute the largest z that hides behind enough honest clients, z = Phi^-1((n - floor(n/2 + 1)) / h).

    Args:
        h: Honest clients.
        b: Byzantine clients, at most h; n = h + b.

    Returns:
        z.  With one attacker or two among many clients it is 0 or near, an attack by the honest mean; with one and an
        odd h it is below 0, -0.43 for h = 3.

    Raises:
        SettingError: If b > h or n < 3: the share is then not a probability.

    >>> round(lie_factor(100, 15), 4), round(lie_factor(160, 54), 4)
    (0.1764, 0.4193)
    """
    n = h + b
    share = (n - n // 2 - 1) / h
    if not 0 < share < 1:
        raise SettingError(
            f"lie's own factor needs n >= 3 clients and no more Byzantine than honest ones, got {b} and {h}; set "
            f"factor or lower federation.n_byzantine."
        )
    return NormalDist().inv_cdf(share)


def lie(
    honest: Float[Tensor, "h d"],
    n_byzantine: int,
    factor: float | None = None,
    drawn: bool = False,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "b d"]:
    """Send mean + z std of the honest updates, coordinate by coordinate.

    Args:
        honest: One honest update per row, at least 2.
        n_byzantine: How many to send.
        factor: z, of either sign.  None: `lie_factor`.
        drawn: Whether each attacker draws its own update from N(mean, (z std)^2) instead.
        generator: Where these come from.  None: torch's global generator.

    Returns:
        The forged updates; if not drawn, one vector expanded to n_byzantine rows.

    Raises:
        SettingError: If there are fewer than 2 honest updates, or factor is None and b > h or n < 3.

    Note:
        The BOBA authors send mean - z std of *models* w - eta g, which is mean + z std of updates.  RAGA sends mean +
        0.7 std of what honest clients upload: z = 0.7 where they upload gradients, as its own do.  Where they upload
        models (FedAvg, RFA and MCA beside it), the same words mean z = -0.7 of updates; its tables are run with 0.7
        throughout.  RAGA leaves open which standard deviation it takes; here it is the sample one for both papers.
        Its robust rules lose what they lose to noise, which attackers that draw explain (RESULTS.md).

    >>> lie(torch.tensor([[1.0, 2.0], [3.0, 2.0], [5.0, 8.0]]), n_byzantine=1, factor=0.7)
    tensor([[4.4000, 6.4249]])
    """
    return _forge(Updates(honest), n_byzantine, factor, drawn, generator)


def _forge(
    honest: Updates, n_byzantine: int, factor: float | None, drawn: bool, generator: torch.Generator | None
) -> Tensor:
    mean, std = spread_of(honest, "lie")
    if factor is None:
        factor = lie_factor(honest.n, n_byzantine)
    if drawn:
        return gaussian(honest.like, n_byzantine, 1.0, generator).mul_(factor * std).add_(mean)
    return (mean + factor * std).expand(n_byzantine, -1)


class Lie(Adversary):
    """Send the honest mean plus ``factor`` standard deviations; see `lie`."""

    def __init__(self, factor: float | None = None, drawn: bool = False):
        if factor is not None:
            check_finite("lie's factor", factor)
        self.factor = factor
        self.drawn = drawn

    def check(self, n_honest: int, n_byzantine: int, n_classes: int) -> None:
        """Check that there is a spread and, without a given factor, a share to hide in; see the base class."""
        check_spread("lie", n_honest)
        if self.factor is None:
            lie_factor(n_honest, n_byzantine)

    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        """Forge one round's updates; see the base class."""
        return _forge(honest, n_byzantine, self.factor, self.drawn, context.generator("lie"))
