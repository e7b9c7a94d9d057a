"""Local model poisoning: against Krum, the trimmed mean and the median, with the signs of the honest mean reversed.

Minghong Fang, Xiaoyu Cao, Jinyuan Jia, Neil Zhenqiang Gong. Local Model Poisoning Attacks to Byzantine-Robust Federated
Learning. USENIX Security 2020. arXiv:1911.11815.
"""

from math import inf, sqrt
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.aggregator.krum import krum_weights
from lightning_fl.errors import SettingError
from lightning_fl.updates.products import squared_distances
from lightning_fl.updates.updates import Updates

Variant = Literal["krum", "trimmed_mean", "median"]
_SMALLEST = 1e-5  # where the search for lambda gives up


class Fang(Adversary):
    """Move the server against s, the signs of the honest mean, as far as the rule lets it.

    "krum": send -lambda s, with lambda halved from lambda_0 until Krum with f = b chooses a copy, or it is below 1e-5
    in the unit of the updates (section 3.2),

        lambda_0 = sqrt(min_i sum_{j near i} ||x_i - x_j||^2 / ((n - 2b - 1) d)) + max_i ||x_i|| / sqrt(d),

    the sum over the n - b - 2 honest updates nearest to x_i.  "trimmed_mean" and "median": beyond the honest updates,
    coordinate by coordinate: where s_k = 1 between min_i x_ik and what is farther out, twice or half of it, where
    s_k = -1 beyond max_i x_ik likewise, where s_k = 0 the mean; one draw per client and coordinate (section 3.3).

    Args:
        variant: "krum", "trimmed_mean" or "median"; the last two are one attack.
        window: See `Adversary`.

    Raises:
        SettingError: Before training, for Krum, if h < b + 2 or h < 3.

    Note:
        The paper sends *models* w - lambda s, with s the signs in which the benign aggregate changes them; that is an
        update of -lambda times the honest mean's signs, and its w_Re, the server's model, is 0 in the space of updates.
        It perturbs all but one of the copies against Krum slightly; as in public code they are equal here.

    Below 1, in [0.5, 1], where the mean is above 0; above -1, in [-1, -0.5], where it is below:

    >>> forged = Fang("median")(torch.tensor([[1.0, -1.0], [3.0, -5.0]]), n_byzantine=1, seed=0)
    >>> bool(0.5 <= forged[0, 0] <= 1), bool(-1 <= forged[0, 1] <= -0.5)
    (True, True)
    """

    def __init__(self, variant: Variant = "trimmed_mean", **window: Any):
        super().__init__(**window)
        self.variant = variant
        self.varies_with = () if variant == "krum" else ("seed", "round")

    @override
    def check(self, n_honest: int, n_byzantine: int, n_classes: int) -> None:
        if self.variant == "krum" and not n_honest >= max(n_byzantine + 2, 3):
            raise SettingError(
                f"fang against krum needs h >= b + 2 and h >= 3 honest clients, got h={n_honest} and b={n_byzantine}; "
                f"add clients, lower federation.n_byzantine or change the variant."
            )

    @override
    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        if self.variant == "krum":
            signs = honest.by_column(lambda rows: rows.mean(0).sign())
            return (-_krum_factor(honest, signs, n_byzantine) * signs).expand(n_byzantine, -1)
        mean, least, most = honest.by_column(lambda rows: torch.stack([rows.mean(0), rows.amin(0), rows.amax(0)]))
        signs = mean.sign()
        edge = torch.where(signs > 0, least, most)
        # Twice the edge lies beyond it if it has the other sign, half of it otherwise.
        reach = edge.abs() * torch.where(edge * signs < 0, 1.0, 0.5)
        generator = context.generator("fang")
        draws = torch.rand(n_byzantine, len(mean), generator=generator, dtype=honest.dtype)
        return torch.where(signs == 0, mean, edge - signs * reach * draws.to(honest.device, non_blocking=True))


def _krum_factor(honest: Updates, signs: Tensor, b: int) -> float:
    """Lambda: halved until Krum chooses a copy, or hopelessly small."""
    h, d = honest.n, honest.d
    gram = honest.gram_with(signs[None])
    nearest = squared_distances(gram[:h, :h]).sort(1).values[:, : h - 1].sum(1)  # itself at 0, and n - b - 2 others
    factor = sqrt(nearest.min().item() / ((h - b - 1) * d)) + sqrt(gram.diagonal()[:h].max().item() / d)
    order = torch.tensor([*range(h), *[h] * b], device=gram.device)
    while _SMALLEST <= factor < inf:
        scale = torch.ones(h + 1, dtype=gram.dtype, device=gram.device)
        scale[h] = -factor
        if krum_weights((gram * scale * scale[:, None])[order][:, order], f=b)[h:].any():
            break
        factor /= 2
    return factor
