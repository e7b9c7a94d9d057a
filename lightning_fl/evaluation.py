"""An evaluation: count samples by true and predicted class; all scores follow from the counts."""

from collections.abc import Sequence
from math import isnan, nan
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torchmetrics import Metric

from lightning_fl.metric.max_recall_drop import max_recall_drop
from lightning_fl.network.images import outputs
from lightning_fl.samples import Samples

_MOST = 1000  # classes of which each pair is counted: 8 MB


class Counted(NamedTuple):
    """Samples by their true class.

    Args:
        total: (c,) how many there are.
        right: (c,) how many are predicted right.
        confusion: (c, c) how many, by true class (rows) and predicted class; None of more than 1,000 classes.
        broken: () how many have an output that is not finite.
    """

    total: Int64[Tensor, " c"]
    right: Int64[Tensor, " c"]
    confusion: Int64[Tensor, "c c"] | None
    broken: Int64[Tensor, ""]

    @property
    def accuracy(self) -> float:
        """The share that is predicted right; NaN without samples."""
        total = self.total.sum().item()
        return self.right.sum().item() / total if total else nan

    @property
    def recall(self) -> Float[Tensor, " c"]:
        """The share of each class that is predicted right; NaN without samples."""
        return self.right / self.total


class ClassCounts(Metric):
    """Count samples by true and predicted class; of many classes, such as words, in memory and time of O(c).

    Args:
        n_classes: The number c of classes.
        settings: See ``torchmetrics.Metric``.

    >>> counts = ClassCounts(2)
    >>> counts.update(torch.tensor([[0.0, 1.0], [0.0, 1.0], [2.0, 1.0]]), torch.tensor([0, 1, 0]))
    >>> counts.compute().confusion
    tensor([[1, 1],
            [0, 1]])
    """

    higher_is_better = None
    full_state_update = False
    total: Tensor
    right: Tensor
    confusion: Tensor
    broken: Tensor

    def __init__(self, n_classes: int, **settings: Any):
        super().__init__(**settings)
        pairs = n_classes if n_classes <= _MOST else 0
        for name, shape in [
            ("total", (n_classes,)),
            ("right", (n_classes,)),
            ("confusion", (pairs, pairs)),
            ("broken", ()),
        ]:
            self.add_state(name, torch.zeros(shape, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, outputs: Float[Tensor, "n c"], targets: Int64[Tensor, " n"]) -> None:
        """Count one batch; the class predicted is the one of the largest output, the first of several."""
        predicted = outputs.argmax(1)
        right = (predicted == targets).long()
        self.broken += (~outputs.isfinite().all(1)).sum()
        self.total.index_add_(0, targets, torch.ones_like(right))  # bincount would wait for a GPU
        self.right.index_add_(0, targets, right)
        if len(self.confusion):
            self.confusion.view(-1).index_add_(0, len(self.total) * targets + predicted, torch.ones_like(right))

    def compute(self) -> Counted:
        """Give the counts."""
        return Counted(self.total, self.right, self.confusion if len(self.confusion) else None, self.broken)


def count(model: nn.Module, samples: Samples, n_classes: int, batch_size: int) -> Counted:
    """Count samples by class and by what a model predicts, all of them in this process.

    Args:
        model: The model, in evaluation mode.
        samples: The samples to predict.
        n_classes: The number c of classes.
        batch_size: Samples at a time.
    """
    counts = ClassCounts(n_classes, sync_on_compute=False).to(samples.targets.device)
    with torch.no_grad():
        for inputs, targets in samples.batches(batch_size):
            counts.update(outputs(model, inputs, samples), targets)
    found: Counted = counts.compute()
    return found


def client_scores(counts: Counted, held: Float[Tensor, "h c"] | Int64[Tensor, "h c"]) -> dict[str, float]:
    """Compute how the model serves clients, each tested on classes in the proportions of its own samples.

    Args:
        counts: The test samples, counted.
        held: Samples of each class that each client holds.

    Returns:
        Mean, least ("worst") and 10 % quantile ("tenth") of the clients' accuracies, in [0, 1] and rounded to six
        digits; empty if no class of theirs has test samples.

    Note:
        The accuracy of client k is sum_z p_kz recall_z, where p_k are the shares of the classes among its training
        samples: what is expected of test samples that are drawn from the test set in these proportions, which all
        clients with the same shares would have in common.  It follows from the counts, so it costs nothing, and no
        draw blurs it.  Where clients differ in more than their classes, as writers do, it does not see that.  Classes
        without test samples are left out of the shares, and so is a client who holds no others.

    >>> counts = ClassCounts(2)
    >>> counts.update(torch.tensor([[0.0, 1.0], [0.0, 1.0], [2.0, 1.0]]), torch.tensor([0, 1, 0]))
    >>> client_scores(counts.compute(), torch.tensor([[3, 1], [0, 9], [4, 0]]))  # recalls are 1/2 and 1
    {'mean': 0.708333, 'worst': 0.5, 'tenth': 0.525}
    """
    known = counts.total > 0
    samples = held.to(counts.total.device)[:, known].double()
    samples = samples[samples.sum(1) > 0]
    if not len(samples):
        return {}
    found = samples @ counts.recall[known].double() / samples.sum(1)
    values = {"mean": found.mean(), "worst": found.min(), "tenth": found.quantile(0.1)}
    return {name: round(value.item(), 6) for name, value in values.items()}


def scores(counts: Counted, reference: Sequence[float | None] | None = None) -> dict[str, float]:
    """Compute what a run reports, each in [0, 1] and rounded to six digits.

    Args:
        counts: The test samples, counted.
        reference: (c,) recalls that max-recall-drop compares with; None where one was not measured.  None: no such
            score.

    Returns:
        ``accuracy``, ``mrd`` and each class's ``recall/z``; those that are NaN, for want of samples, are left out.

    >>> counts = ClassCounts(2)
    >>> counts.update(torch.tensor([[0.0, 1.0], [0.0, 1.0], [2.0, 1.0]]), torch.tensor([0, 1, 0]))
    >>> scores(counts.compute(), [0.75, 1.0])
    {'accuracy': 0.666667, 'mrd': 0.25, 'recall/0': 0.5, 'recall/1': 1.0}
    """
    found = {"accuracy": counts.accuracy}
    if reference is not None:
        known = torch.tensor([nan if recall is None else recall for recall in reference])
        found["mrd"] = max_recall_drop(counts.recall, known.to(counts.recall)).item()
    found |= {f"recall/{z}": value for z, value in enumerate(counts.recall.tolist())}
    return {name: round(value, 6) for name, value in found.items() if not isnan(value)}
