"""LIE, "a little is enough": hide in the spread of the honest updates.

Gilad Baruch, Moran Baruch, Yoav Goldberg. A Little Is Enough: Circumventing Defenses For Distributed Learning.
NeurIPS 2019. arXiv:1902.06156.
"""

from statistics import NormalDist
from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.adversary.gaussian import normal
from lightning_fl.errors import SettingError
from lightning_fl.ranges import FiniteFloat
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


class Lie(Adversary):
    """Send mean + z std of the honest updates, or mean - z std, coordinate by coordinate.

    std is the sample standard deviation.

    Args:
        factor: z, of either sign.  None: `lie_factor` of the round's clients.
        drawn: Whether each attacker draws its own update from N(mean, (z std)^2) instead.
        sign: "plus": mean + z std.  "minus": mean - z std.
        window: See `Adversary`.

    Raises:
        SettingError: Before training, if there are fewer than 2 honest updates, or factor is None and b > h or n < 3.

    Note:
        Baruch et al. and Karimireddy et al. (ICLR 2022) send mean - z std of *gradients*: "minus".  The BOBA authors
        send mean - z std of *models* w - eta g, which is "plus" of updates, and harmless where Baruch's is not: a
        network with ReLU is not the same under both.  RAGA sends mean + 0.7 std of what honest clients upload: "plus"
        where they upload gradients, as its own do.  Where they upload models (FedAvg, RFA and MCA beside it), the same
        words mean "minus"; its tables are run with "plus" throughout.  RAGA leaves open which standard deviation it
        takes; here it is the sample one for all.  Its robust rules lose what they lose to noise, which attackers that
        draw explain (RESULTS.md).

    >>> import torch
    >>> Lie(factor=0.7)(torch.tensor([[1.0, 2.0], [3.0, 2.0], [5.0, 8.0]]), n_byzantine=1)
    tensor([[4.4000, 6.4249]])
    """

    least_honest = 2

    def __init__(self, factor: FiniteFloat | None = None, drawn: bool = False, sign: Sign = "plus", **window: Any):
        super().__init__(**window)
        self.factor = factor
        self.drawn = drawn
        self.sign: Sign = sign
        self.varies_with = ("seed", "round") if drawn else ()

    @override
    def check(self, n_honest: int, n_byzantine: int, n_classes: int) -> None:
        super().check(n_honest, n_byzantine, n_classes)
        self._factor(n_honest, n_byzantine)

    @override
    def note(self, n_honest: int, n_byzantine: int) -> str | None:
        return f"z = {self._factor(n_honest, n_byzantine):.4g}: honest mean {self.sign} z standard deviations"

    @override
    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        (mean, std), z = honest.mean_and_std, self._factor(honest.n, n_byzantine)
        if self.drawn:
            return normal(honest.like, n_byzantine, context.generator("lie")).mul_(z * std).add_(mean)
        return (mean + (z if self.sign == "plus" else -z) * std).expand(n_byzantine, -1)

    def _factor(self, h: int, b: int) -> float:
        return lie_factor(h, b) if self.factor is None else self.factor
