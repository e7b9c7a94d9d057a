"""Label flipping: train like the others, on wrong labels.

Minghong Fang, Xiaoyu Cao, Jinyuan Jia, Neil Zhenqiang Gong. Local Model Poisoning Attacks to Byzantine-Robust Federated
Learning. USENIX Security 2020. arXiv:1911.11815.
"""

from abc import abstractmethod
from dataclasses import replace
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from lightning_fl.adversary.base import Adversary, AttackContext, Momentum, check_held, check_momentum
from lightning_fl.data.base import FederatedDataModule
from lightning_fl.errors import SettingError, check_choice
from lightning_fl.samples import Samples
from lightning_fl.updates.updates import Updates


def flip(samples: Samples) -> Samples:
    """Turn every label y into c - 1 - y; the inputs are shared, not copied.

    >>> import torch
    >>> flip(Samples(torch.zeros(3, 2), torch.tensor([0, 1, 9]), n_classes=10)).targets
    tensor([9, 8, 0])
    """
    return replace(samples, targets=samples.n_classes - 1 - samples.targets)


Among = Literal["all", "others"]


def random_labels(samples: Samples, generator: torch.Generator, among: Among = "others") -> Samples:
    """Give every sample a random label.

    Args:
        samples: The samples.
        generator: Where the labels come from.
        among: "all": uniform over the c classes.  "others": over the c - 1 wrong ones.

    Returns:
        The samples with new labels; the inputs are shared, not copied.

    Of two classes there is one other:

    >>> random_labels(Samples(torch.zeros(3, 2), torch.tensor([0, 1, 1]), n_classes=2), torch.Generator()).targets
    tensor([1, 0, 0])
    """
    c, y = samples.n_classes, samples.targets
    low = 1 if among == "others" and c > 1 else 0
    shift = torch.randint(low, max(c, 1), y.shape, generator=generator)
    return replace(samples, targets=(y + shift.to(y.device)) % c)


def relabel(samples: Samples, source: int | None, target: int) -> Samples:
    """Label every sample of class ``source`` (None: every sample) as ``target``; others keep their labels.

    >>> relabel(Samples(torch.zeros(3, 2), torch.tensor([0, 2, 9]), n_classes=10), source=2, target=7).targets
    tensor([0, 7, 9])
    """
    y = samples.targets
    return replace(samples, targets=torch.full_like(y, target) if source is None else y.where(y != source, target))


class _Relabelling(Adversary):
    """Let the Byzantine clients do what honest ones do, on their own data with other labels."""

    def __init__(self, momentum: Momentum = "own"):
        check_momentum(momentum)
        self.momentum: Momentum = momentum

    @abstractmethod
    def labels(self, samples: Samples, context: AttackContext) -> Samples:
        """Replace the labels."""

    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        """Compute one round's updates; see the base class."""
        batch = replace(context.byzantine, samples=self.labels(context.byzantine.samples, context))
        return context.trained(batch, self.momentum)


class LabelFlip(_Relabelling):
    """Let the Byzantine clients do what honest ones do, on their own data with flipped labels; see `flip`.

    Args:
        momentum: Whether they have the honest clients' momentum, if any.  "own": each has.  "none": what they compute
            in this round alone (Karimireddy, He, Jaggi, ICLR 2022).
    """

    def labels(self, samples: Samples, context: AttackContext) -> Samples:
        """Flip the labels."""
        return flip(samples)


class LabelFlipRandom(_Relabelling):
    """Let the Byzantine clients do what honest ones do, on their own data with random labels; see `random_labels`.

    Args:
        among: "all" or "others".
        redraw: False: one draw per sample for the whole run.  True: new labels each round.
        momentum: See `LabelFlip`.
    """

    def __init__(self, among: Among = "others", redraw: bool = False, momentum: Momentum = "own"):
        super().__init__(momentum)
        check_choice("label_flip_random's among", among, get_args(Among))
        self.among: Among = among
        self.redraw = redraw

    def labels(self, samples: Samples, context: AttackContext) -> Samples:
        """Draw the labels."""
        first = replace(context.round, index=context.round.index if self.redraw else 0)
        return random_labels(samples, first.generator("adversary", "label flip"), self.among)


class LabelFlipPair(_Relabelling):
    """Let the Byzantine clients do what honest ones do, with samples of one class labelled as another.

    Its evaluations report ``attack/source_recall``, the recall of the source class, and ``attack/source_as_target``,
    the share of its test samples that the model takes for the target.  See `relabel`.

    Args:
        source: Whose samples are labelled wrongly.  None: those of every class.
        target: What they are labelled as.
        momentum: See `LabelFlip`.

    Note:
        An attacker without the source class is honest; under label skew that may be most of them.
    """

    def __init__(self, source: int | None = 2, target: int = 7, momentum: Momentum = "own"):
        super().__init__(momentum)
        if target < 0 or (source is not None and (source < 0 or source == target)):
            raise SettingError(
                f"label_flip_pair needs two different classes, numbers of at least 0, got {source} and {target}; set "
                f"source and target."
            )
        self.source = source
        self.target = target

    def check_data(self, data: FederatedDataModule) -> None:
        """Check that both classes exist and that there is something to label wrongly; see the base class."""
        most = max(self.target, self.source or 0)
        if most >= data.n_classes:
            raise SettingError(
                f"label_flip_pair needs classes below {data.n_classes}, got {most}; set source and target."
            )
        check_held(data, self.source)

    def labels(self, samples: Samples, context: AttackContext) -> Samples:
        """Replace the source's labels."""
        return relabel(samples, self.source, self.target)

    def observe(self, confusion: Int64[Tensor, "c c"]) -> dict[str, float]:
        """Measure how the source class fares; see the base class."""
        others = torch.arange(len(confusion)) != self.target
        rows = confusion[others] if self.source is None else confusion[self.source][None]
        total = rows.sum().item()
        if not total:
            return {}
        right = confusion.diagonal()[others].sum() if self.source is None else confusion[self.source, self.source]
        return {"source_recall": right.item() / total, "source_as_target": rows[:, self.target].sum().item() / total}
