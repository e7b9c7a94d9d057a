"""What an evaluation counts."""

import torch
from torchmetrics.functional.classification import multiclass_accuracy, multiclass_confusion_matrix, multiclass_recall

from lightning_fl.evaluation import ClassCounts


def test_counts_are_those_of_torchmetrics(draw):
    outputs, targets = torch.randn(200, 7, generator=draw), torch.randint(6, (200,), generator=draw)
    outputs[3, 2] = torch.nan
    outputs[5, 0] = torch.inf
    counts = ClassCounts(7)
    for part in (slice(0, 150), slice(150, None)):
        counts.update(outputs[part], targets[part])
    found = counts.compute()
    assert found.broken == 2
    assert torch.equal(found.confusion, multiclass_confusion_matrix(outputs, targets, 7))
    torch.testing.assert_close(found.recall[:6], multiclass_recall(outputs, targets, 7, average="none")[:6])
    assert found.recall[6].isnan()  # no sample
    torch.testing.assert_close(
        torch.tensor(found.accuracy), multiclass_accuracy(outputs, targets, 7, average="micro"), rtol=0, atol=1e-7
    )


def test_a_vocabulary_has_no_matrix_of_pairs():
    """Of 100,000 words, the pairs would take 80 GB."""
    outputs, targets = torch.zeros(3, 100_000), torch.tensor([5, 99_999, 7])
    outputs[0, 5] = outputs[1, 99_999] = outputs[2, 8] = 1.0
    counts = ClassCounts(100_000)
    counts.update(outputs, targets)
    found = counts.compute()
    assert found.confusion is None
    assert found.recall[[5, 7, 99_999]].tolist() == [1.0, 0.0, 1.0]
    assert found.accuracy == 2 / 3
