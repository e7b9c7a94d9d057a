"""What an evaluation counts."""

import numpy as np
import pytest
import torch
from torch import nn
from torchmetrics.functional.classification import multiclass_accuracy, multiclass_confusion_matrix, multiclass_recall

import lightning_fl as fl
from lightning_fl.evaluation import ClassCounts
from lightning_fl.study.grid import measure


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


def test_clients_are_scored_on_their_own_classes(draw, tmp_path):
    y = torch.arange(90) % 3
    x = torch.randn(90, 4, generator=draw) + y[:, None]
    a, b, c = ([*range(z, 90, 3)] for z in range(3))
    parts = [a[:20] + b[:10], a[20:], b[10:] + c[:10], c[10:]]
    settings = {"partition": parts, "federation": fl.Federation(4, 1, "replacement"), "server_samples": 0}

    def run(**more):
        data = fl.TensorData((x, y), (x, y), **settings, **more)
        return fl.train(lambda: nn.Linear(4, 3), data, attack=fl.adversary.SameValue(0.1), rounds=2)

    found, off = run(client_scores=True), run()
    right = (found.model(x).argmax(1) == y).double()
    own = [[0, 0, 1], [0, 0, 0], [1, 1, 2]]  # the last one attacks
    scores = [torch.stack([right[y == z].mean() for z in classes]).mean().item() for classes in own]
    expected = {"mean": sum(scores) / 3, "worst": min(scores), "tenth": np.quantile(scores, 0.1)}
    assert found.summary["client_accuracy"] == pytest.approx(expected, abs=1e-6)
    assert found.metrics[-1]["client_accuracy/worst"] == pytest.approx(min(scores), abs=1e-6)
    assert len(set(scores)) == 3
    assert found.accuracy == off.accuracy
    assert off.summary["client_accuracy"] is None
    assert not [name for name in off.metrics[-1] if name.startswith("client")]
    found.save(tmp_path)
    assert measure(tmp_path, 0.0)["client_tenth"] == pytest.approx(100 * expected["tenth"], abs=1e-4)
    assert "of honest clients" in (tmp_path / "report.html").read_text()
    shown = str(fl.compare([tmp_path], metric="client_worst"))
    assert f"{100 * min(scores):.1f}" in shown
