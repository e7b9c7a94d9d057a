"""Gaussian noise instead of an update.

Peva Blanchard, El Mahdi El Mhamdi, Rachid Guerraoui, Julien Stainer. Machine Learning with Adversaries: Byzantine
Tolerant Gradient Descent. NeurIPS 2017. arXiv:1703.02757.
"""

from math import inf
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.errors import SettingError, check_choice
from lightning_fl.network.parameters import flatten, trainable
from lightning_fl.updates.updates import Updates

Space = Literal["parameters", "models", "updates"]


def gaussian(
    honest: Float[Tensor, "h d"], n_byzantine: int, std: float = 200.0, generator: torch.Generator | None = None
) -> Float[Tensor, "b d"]:
    """Send independent noise N(0, std^2 I), one draw per Byzantine client.

    Args:
        honest: One honest update per row; gives length, dtype and device.
        n_byzantine: How many rows to draw.
        std: Standard deviation of a coordinate, at least 0.
        generator: Where the noise comes from.  None: torch's global generator.

    Returns:
        The forged updates.

    Raises:
        SettingError: If std is negative or not finite.

    >>> gaussian(torch.zeros(3, 2), n_byzantine=4, std=200.0).shape
    torch.Size([4, 2])
    """
    _check(std)
    noise = torch.randn(n_byzantine, honest.shape[1], generator=generator, dtype=honest.dtype)
    return noise.to(honest.device).mul_(std)


def _check(std: float) -> None:
    if not 0 <= std < inf:
        raise SettingError(f"gaussian needs a finite std >= 0, got {std}.")


class Gaussian(Adversary):
    """Send Gaussian noise in the space of parameters or of updates; see `gaussian`.

    Args:
        std: Standard deviation of a coordinate, at least 0.
        space: "parameters": the client reports the model w + N(0, std^2 I), so its update has std / rate, the rate
            being that of its uploads (the BOBA paper's reading, std 200).  "models": it reports the model
            N(0, std^2 I), without w (FRPG, std 1e4).  "updates": the update itself is N(0, std^2 I) (Fed-NGA and RAGA,
            variance 90).

    Note:
        The BOBA paper writes N(0, 200 I); its code, as the Krum paper, takes 200 as standard deviation.  Fed-NGA and
        RAGA write N(0, 90), here a variance.
    """

    def __init__(self, std: float = 200.0, space: Space = "parameters"):
        _check(std)
        check_choice("gaussian's space", space, get_args(Space))
        self.std = std
        self.space = space

    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        """Forge one round's updates; see the base class.

        Raises:
            SettingError: If a model is to be reported and the learning rate is not above 0.
        """
        rate = 1.0 if self.space == "updates" else context.client.upload_rate(context.round)
        if not rate > 0:
            raise SettingError(f"gaussian needs a learning rate > 0 to report a model, got {rate}; set space=updates.")
        noise = gaussian(honest.like, n_byzantine, self.std / rate, context.generator("gaussian"))
        if self.space == "models":  # (w - noise) / rate
            noise = noise.neg_().add_(flatten(trainable(context.model).values()) / rate)
        return noise
