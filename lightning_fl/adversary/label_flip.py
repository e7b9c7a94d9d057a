"""Label flipping: train as everybody, on wrong labels.

Minghong Fang, Xiaoyu Cao, Jinyuan Jia, Neil Zhenqiang Gong. Local Model Poisoning Attacks to Byzantine-Robust Federated
Learning. USENIX Security 2020. arXiv:1911.11815.
"""

from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.samples import Samples
from lightning_fl.updates import Updates


def flip(samples: Samples) -> Samples:
    """Turn every label y into c - 1 - y; the inputs are shared, not copied.

    >>> import torch
    >>> flip(Samples(torch.zeros(3, 2), torch.tensor([0, 1, 9]), n_classes=10)).targets
    tensor([9, 8, 0])
    """
    return replace(samples, targets=samples.n_classes - 1 - samples.targets)


class LabelFlip(Adversary):
    """Let the Byzantine clients do what honest ones do, on their own data with flipped labels; see `flip`."""

    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        """Compute one round's updates; see the base class."""
        batch = replace(context.byzantine, samples=flip(context.byzantine.samples))
        return context.client.updates(context.model, batch, context.round).updates
