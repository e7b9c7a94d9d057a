"""Gaussian noise instead of an update.

Peva Blanchard, El Mahdi El Mhamdi, Rachid Guerraoui, Julien Stainer. Machine Learning with Adversaries: Byzantine
Tolerant Gradient Descent. NeurIPS 2017. arXiv:1703.02757.
"""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.base import Adversary, AttackContext, Knowledge
from lightning_fl.errors import SettingError
from lightning_fl.network.parameters import flatten, trainable
from lightning_fl.ranges import NonNegativeFloat
from lightning_fl.updates.updates import Updates

Space = Literal["parameters", "models", "updates"]


class Gaussian(Adversary):
    """Send independent noise N(0, std^2 I), one draw per Byzantine client.

    Args:
        std: Standard deviation of a coordinate, at least 0.
        space: "parameters": the client reports the model w + N(0, std^2 I), so its update has std / rate, the rate
            being that of its uploads (the BOBA paper's reading, std 200).  "models": it reports the model
            N(0, std^2 I), without w (FRPG, std 1e4).  "updates": the update itself is N(0, std^2 I) (Fed-NGA and RAGA,
            variance 90).
        window: See `Adversary`.

    Note:
        The BOBA paper writes N(0, 200 I); its code, as the Krum paper, takes 200 as standard deviation.  Fed-NGA and
        RAGA write N(0, 90), here a variance.

    >>> Gaussian(200.0, "updates")(torch.zeros(3, 2), n_byzantine=4, seed=1).shape
    torch.Size([4, 2])
    """

    varies_with = ("seed", "round")

    def __init__(self, std: NonNegativeFloat = 200.0, space: Space = "parameters", **window: Any):
        super().__init__(**window)
        self.std = std
        self.space = space
        self.knows: Knowledge = "models" if space == "models" else "nothing"

    @override
    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        rate = 1.0 if self.space == "updates" else context.client.upload_rate(context.round)
        if not rate > 0:
            raise SettingError(f"gaussian needs a learning rate > 0 to report a model, got {rate}; set space=updates.")
        noise = normal(honest.like, n_byzantine, context.generator("gaussian")).mul_(self.std / rate)
        if self.space == "models":  # (w - noise) / rate
            noise = noise.neg_().add_(flatten(trainable(context.model).values()) / rate)
        return noise


def normal(like: Float[Tensor, "h d"], n_byzantine: int, generator: torch.Generator) -> Float[Tensor, "b d"]:
    """Draw b rows from N(0, I), of the length, dtype and device of the honest ones."""
    drawn = torch.randn(n_byzantine, like.shape[1], generator=generator, dtype=like.dtype)
    return drawn.to(like.device, non_blocking=True)
