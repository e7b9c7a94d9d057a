"""LIE, "a little is enough": hide in the spread of the honest updates.

Gilad Baruch, Moran Baruch, Yoav Goldberg. A Little Is Enough: Circumventing Defenses For Distributed Learning.
NeurIPS 2019. arXiv:1902.06156.
"""

from statistics import NormalDist
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.adversary.gaussian import gaussian
from lightning_fl.adversary.spread import check_spread, spread_of
from lightning_fl.errors import SettingError, check_choice, check_finite
from lightning_fl.updates.updates import Updates

Sign = Literal["plus", "minus"]


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
    sign: Sign = "plus",
    generator: torch.Generator | None = None,
) -> Float[Tensor, "b d"]:
    """Send mean + z std of the honest updates, or mean - z std, coordinate by coordinate.

    Args:
        honest: One honest update per row, at least 2.
        n_byzantine: How many to send.
        factor: z, of either sign.  None: `lie_factor`.
        drawn: Whether each attacker draws its own update from N(mean, (z std)^2) instead.
        sign: "plus": mean + z std.  "minus": mean - z std.
        generator: Where these come from.  None: torch's global generator.

    Returns:
        The forged updates; if not drawn, one vector expanded to n_byzantine rows.

    Raises:
        SettingError: If there are fewer than 2 honest updates, or factor is None and b > h or n < 3.

    Note:
        Baruch et al. and Karimireddy et al. (ICLR 2022) send mean - z std of *gradients*: "minus".  The BOBA authors
        send mean - z std of *models* w - eta g, which is "plus" of updates, and harmless where Baruch's is not: a
        network with ReLU is not the same under both.  RAGA sends mean + 0.7 std of what honest clients upload: "plus"
        where they upload gradients, as its own do.  Where they upload models (FedAvg, RFA and MCA beside it), the same
        words mean "minus"; its tables are run with "plus" throughout.  RAGA leaves open which standard deviation it
        takes; here it is the sample one for all.  Its robust rules lose what they lose to noise, which attackers that
        draw explain (RESULTS.md).

    >>> lie(torch.tensor([[1.0, 2.0], [3.0, 2.0], [5.0, 8.0]]), n_byzantine=1, factor=0.7)
    tensor([[4.4000, 6.4249]])
    """
    check_choice("lie's sign", sign, get_args(Sign))
    return _forge(Updates(honest), n_byzantine, factor, drawn, sign, generator)


def _forge(
    honest: Updates, n_byzantine: int, factor: float | None, drawn: bool, sign: Sign, generator: torch.Generator | None
) -> Tensor:
    mean, std = spread_of(honest, "lie")
    if factor is None:
        factor = lie_factor(honest.n, n_byzantine)
    if drawn:
        return gaussian(honest.like, n_byzantine, 1.0, generator).mul_(factor * std).add_(mean)
    return (mean + (factor if sign == "plus" else -factor) * std).expand(n_byzantine, -1)


class Lie(Adversary):
    """Send the honest mean plus, or minus, ``factor`` standard deviations; see `lie`."""

    def __init__(self, factor: float | None = None, drawn: bool = False, sign: Sign = "plus"):
        if factor is not None:
            check_finite("lie's factor", factor)
        check_choice("lie's sign", sign, get_args(Sign))
        self.factor = factor
        self.drawn = drawn
        self.sign: Sign = sign

    def check(self, n_honest: int, n_byzantine: int, n_classes: int) -> None:
        """Check that there is a spread and, without a given factor, a share to hide in; see the base class."""
        check_spread("lie", n_honest)
        if self.factor is None:
            lie_factor(n_honest, n_byzantine)

    def note(self, n_honest: int, n_byzantine: int) -> str | None:
        """Say what z is; see the base class."""
        z = lie_factor(n_honest, n_byzantine) if self.factor is None else self.factor
        return f"z = {z:.4g}: honest mean {self.sign} z standard deviations"

    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        """Forge one round's updates; see the base class."""
        return _forge(honest, n_byzantine, self.factor, self.drawn, self.sign, context.generator("lie"))
