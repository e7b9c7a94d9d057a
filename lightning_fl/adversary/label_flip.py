"""Label flipping: train like the others, on wrong labels.

Minghong Fang, Xiaoyu Cao, Jinyuan Jia, Neil Zhenqiang Gong. Local Model Poisoning Attacks to Byzantine-Robust Federated
Learning. USENIX Security 2020. arXiv:1911.11815.
"""

from abc import abstractmethod
from dataclasses import replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.base import AttackContext, check_held
from lightning_fl.adversary.trained import Trained
from lightning_fl.data.base import FederatedDataModule
from lightning_fl.errors import SettingError
from lightning_fl.ranges import NonNegativeInt
from lightning_fl.round import Round
from lightning_fl.samples import Samples
from lightning_fl.updates.updates import Updates

Among = Literal["all", "others"]


class _Relabelling(Trained):
    """Let the Byzantine clients do what honest ones do, on their own data with other labels."""

    @abstractmethod
    def labels(self, samples: Samples, this_round: Round) -> Samples:
        """Replace the labels; the inputs are shared, not copied."""

    @override
    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        batch = replace(context.byzantine, samples=self.labels(context.byzantine.samples, context.round))
        return self.trained(batch, context)


class LabelFlip(_Relabelling):
    """Let the Byzantine clients do what honest ones do, on their own data with every label y turned into c - 1 - y.

    Args:
        training: See `Trained`; Karimireddy, He, Jaggi (ICLR 2022) have momentum="none".

    >>> samples = Samples(torch.zeros(3, 2), torch.tensor([0, 1, 9]), n_classes=10)
    >>> LabelFlip().labels(samples, Round(0, 0.1, seed=0)).targets
    tensor([9, 8, 0])
    """

    @override
    def labels(self, samples: Samples, this_round: Round) -> Samples:
        return replace(samples, targets=samples.n_classes - 1 - samples.targets)


class LabelFlipRandom(_Relabelling):
    """Let the Byzantine clients do what honest ones do, on their own data with random labels.

    Args:
        among: "all": uniform over the c classes.  "others": over the c - 1 wrong ones.
        redraw: False: one draw per sample for the whole run.  True: new labels each round.
        training: See `Trained`.

    Of two classes there is one other:

    >>> samples = Samples(torch.zeros(3, 2), torch.tensor([0, 1, 1]), n_classes=2)
    >>> LabelFlipRandom().labels(samples, Round(0, 0.1, seed=0)).targets
    tensor([1, 0, 0])
    """

    def __init__(self, among: Among = "others", redraw: bool = False, **training: Any):
        super().__init__(**training)
        self.among: Among = among
        self.redraw = redraw
        self.varies_with = ("seed", "round") if redraw else ("seed",)

    @override
    def labels(self, samples: Samples, this_round: Round) -> Samples:
        c, y = samples.n_classes, samples.targets
        generator = replace(this_round, index=this_round.index if self.redraw else 0).generator(
            "adversary", "label flip"
        )
        low = 1 if self.among == "others" and c > 1 else 0
        shift = torch.randint(low, max(c, 1), y.shape, generator=generator)
        return replace(samples, targets=(y + shift.to(y.device, non_blocking=True)) % c)


class LabelFlipPair(_Relabelling):
    """Let the Byzantine clients do what honest ones do, with samples of one class labelled as another.

    Its evaluations report ``attack/source_recall``, the recall of the source class, and ``attack/source_as_target``,
    the share of its test samples that the model takes for the target.

    Args:
        source: Whose samples are labelled wrongly; others keep their labels.  None: those of every class.
        target: What they are labelled as, another class.
        training: See `Trained`.

    Raises:
        SettingError: Before training, if there are no such classes, or no Byzantine client holds the source class.

    Note:
        An attacker without the source class is honest; under label skew that may be most of them.

    >>> samples = Samples(torch.zeros(3, 2), torch.tensor([0, 2, 9]), n_classes=10)
    >>> LabelFlipPair(source=2, target=7).labels(samples, Round(0, 0.1, seed=0)).targets
    tensor([0, 7, 9])
    """

    def __init__(self, source: NonNegativeInt | None = 2, target: NonNegativeInt = 7, **training: Any):
        super().__init__(**training)
        if source == target:
            raise SettingError(
                f"label_flip_pair needs two different classes, got {source} and {target}; set source and target."
            )
        self.source = source
        self.target = target

    @override
    def check_data(self, data: FederatedDataModule) -> None:
        most = max(self.target, self.source or 0)
        if most >= data.n_classes:
            raise SettingError(
                f"label_flip_pair needs classes below {data.n_classes}, got {most}; set source and target."
            )
        check_held(data, self.source)

    @override
    def labels(self, samples: Samples, this_round: Round) -> Samples:
        y = samples.targets
        wrong = torch.full_like(y, self.target) if self.source is None else y.where(y != self.source, self.target)
        return replace(samples, targets=wrong)

    @override
    def observe(self, confusion: Int64[Tensor, "c c"]) -> dict[str, float]:
        others = torch.arange(len(confusion)) != self.target
        rows = confusion[others] if self.source is None else confusion[self.source][None]
        total = rows.sum().item()
        if not total:
            return {}
        right = confusion.diagonal()[others].sum() if self.source is None else confusion[self.source, self.source]
        return {"source_recall": right.item() / total, "source_as_target": rows[:, self.target].sum().item() / total}
