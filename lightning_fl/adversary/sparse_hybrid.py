"""Hybrid sparse attack: stay close to the honest mean, but not in the few weights that matter most.

Hybrid sparse Byzantine attack. 2024. arXiv:2404.06230.
"""

from math import ceil
from typing import Annotated, Any, Literal

import torch
from annotated_types import Gt, Le
from jaxtyping import Bool, Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.adversary.lie import lie_factor
from lightning_fl.adversary.min_max import largest
from lightning_fl.aggregator.remembering import Memory
from lightning_fl.client.gradient import Gradient
from lightning_fl.network.parameters import flatten, trainable
from lightning_fl.ranges import FiniteFloat
from lightning_fl.samples import ClientBatch
from lightning_fl.updates.columns import Layout
from lightning_fl.updates.deviation import squares_about
from lightning_fl.updates.layout import layout_of
from lightning_fl.updates.updates import Updates

Cap = Literal["none", "iqr", "z_score"]
_FIRST_Z, _NEAR = 10.0, 1e-5


def sensitive(
    saliency: Float[Tensor, " d"], layout: Layout, share: float, among: Literal["local", "global"] = "local"
) -> Bool[Tensor, " d"]:
    """Mark the ceil(share k) largest of k entries, in each tensor of two or more dimensions or in all of these.

    >>> layout = layout_of({"w": torch.zeros(2, 2), "b": torch.zeros(2)})
    >>> sensitive(torch.tensor([0.1, 3.0, 2.0, 0.5, 9.0, 9.0]), layout, 0.5)
    tensor([False,  True,  True, False, False, False])
    """
    found = torch.zeros_like(saliency, dtype=torch.bool)
    each = [torch.arange(layer.start, layer.stop, device=found.device) for layer in layout if layer.dimensions > 1]
    for columns in [torch.cat(each)] if among == "global" and each else each:
        order = saliency[columns].argsort(descending=True, stable=True)
        found[columns[order[: ceil(share * len(columns))]]] = True
    return found


def capped(std: Float[Tensor, " k"], cap: Cap) -> Float[Tensor, " k"]:
    """Lower outliers among standard deviations, to q75 + 1.5 (q75 - q25) or to the mean and two deviations."""
    if cap == "none" or len(std) < 2:
        return std
    if cap == "z_score":
        return std.clamp(max=std.mean() + 2 * std.std())
    ordered, places = std.sort().values, torch.tensor([0.25, 0.75], dtype=torch.float64) * (len(std) - 1)
    below = places.floor().long()
    low, high = ordered[below], ordered[(below + 1).clamp(max=len(std) - 1)]
    first, third = low + (places - below).to(std) * (high - low)
    return std.clamp(max=third + 1.5 * (third - first))


class SparseHybrid(Memory, Adversary):
    """Send mean_j - scale std_j e_j in a few sensitive weights and mean_j - z std_j e_j in the others.

    Mean and standard deviation are those of the honest updates.  Sensitive are the weights of largest |w_j dF/dw_j| at
    the first model attacked, F the mean loss over the attackers' own samples; no biases, no norms.

    Args:
        scale: Standard deviations from the mean in the sensitive weights.
        factor: z.  None: LIE's own.
        share: Share of the weights that are sensitive, 0 < share <= 1.
        mask: "local": that share of each tensor of two or more dimensions; "global": of all of these together.
        sign: e_j: "inv_std": 1; "inv_mean": the mean's sign.
        cap: Largest deviation of a sensitive weight: "none", "iqr": q75 + 1.5 (q75 - q25), "z_score": mean + 2
            deviations.
        optimised: Take the largest z with which the update is as near to the honest ones, by the sum of squared
            distances, as the nearest of these is.
        window: See `Adversary`.

    Raises:
        SettingError: Before training, if factor is None and n < 3 or b > h.

    Note:
        The public code prunes the first model by 100 steps of another method, on all honest data; here one gradient on
        the attackers' own samples chooses.
    """

    least_honest = 2
    knows = "updates"

    def __init__(
        self,
        scale: FiniteFloat = 1.5,
        factor: FiniteFloat | None = None,
        share: Annotated[float, Gt(0), Le(1)] = 0.005,
        mask: Literal["local", "global"] = "local",
        sign: Literal["inv_std", "inv_mean"] = "inv_std",
        cap: Cap = "none",
        optimised: bool = False,
        **window: Any,
    ):
        super().__init__(**window)
        self.scale = scale
        self.factor = factor
        self.share = share
        self.mask: Literal["local", "global"] = mask
        self.sign = sign
        self.cap: Cap = cap
        self.optimised = optimised

    @override
    def check(self, n_honest: int, n_byzantine: int, n_classes: int) -> None:
        super().check(n_honest, n_byzantine, n_classes)
        if self.factor is None and not self.optimised:
            lie_factor(n_honest, n_byzantine)

    def chosen(self, context: AttackContext) -> Bool[Tensor, " d"]:
        """Mark the sensitive weights of the model."""
        batch, parameters = context.byzantine, trainable(context.model)
        together = ClientBatch(batch.samples, [torch.cat(list(batch.indices))], [batch.ids[0]])
        gradient = Gradient().updates(context.model, together, context.round).updates[0]
        saliency = (gradient * flatten(parameters.values()).to(gradient)).abs()
        return sensitive(saliency, layout_of(parameters), self.share, self.mask)

    @override
    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        known = self._remembered.get("mask")
        mask = (self.chosen(context) if known is None else known).to(honest.device, non_blocking=True)
        self._last = {"mask": mask}
        mean, std = honest.mean_and_std
        std = std.masked_scatter(mask, capped(std[mask], self.cap))
        away = std if self.sign == "inv_std" else std * mean.sign()
        z = self._factor(honest, n_byzantine, mean, away, mask)
        return (mean - torch.where(mask, self.scale * away, z * away)).expand(n_byzantine, -1)

    def _factor(self, honest: Updates, b: int, mean: Tensor, away: Tensor, mask: Tensor) -> float:
        if self.optimised:
            squares = away.double().square()
            inside, outside = (squares[mask].sum().item(), squares[~mask].sum().item())
            # sum_i ||y - x_i||^2 is h ||y - mean||^2 and what all y share.
            limit = squares_about(honest, mean).min().item()
            return largest(lambda z: self.scale**2 * inside + z**2 * outside <= limit, _FIRST_Z, _NEAR)
        return lie_factor(honest.n, b) if self.factor is None else self.factor
