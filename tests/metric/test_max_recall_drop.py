"""How much the worst-off class loses."""

import copy
import pickle

import pytest
import torch
from torchmetrics import MetricCollection

from lightning_fl import SettingError
from lightning_fl.metric.max_recall_drop import MaxRecallDrop, max_recall_drop

NAN = float("nan")


def slow_drop(predictions, targets, reference):
    """max over classes with samples of reference minus the share of them that were found, but at least 0."""
    drops = [0.0]
    for z, before in enumerate(reference):
        members = [p for p, y in zip(predictions, targets, strict=True) if y == z]
        drops += [before - sum(p == z for p in members) / len(members)] if members else []
    return max(drops)


def problem(draw, n=60, c=5):
    logits = torch.randn(n, c, generator=draw)
    targets = torch.randint(0, c, (n,), generator=draw)
    reference = torch.rand(c, generator=draw)
    return logits, targets, reference, slow_drop(logits.argmax(1).tolist(), targets.tolist(), reference.tolist())


@pytest.mark.parametrize(
    ("recall", "reference", "drop"),
    [
        ([0.9, 0.5], [0.8, 0.75], 0.25),  # not the mean drop (0.075), not the largest change of the best class
        ([0.0, 1.0], [0.97, 0.9], 0.97),
        ([0.9, 0.9], [0.8, 0.9], 0.0),  # a gain is no drop
        ([0.2], [0.2], 0.0),
        ([0.9, NAN], [1.0, 1.0], 0.1),  # not measured here: no test samples
        ([0.2, 0.5], [NAN, 0.75], 0.25),  # nor there
        ([NAN, 0.9], [0.5, 0.8], 0.0),
        ([NAN], [1.0], NAN),
    ],
)
def test_by_hand(recall, reference, drop):
    found = max_recall_drop(torch.tensor(recall), torch.tensor(reference)).item()
    assert found == pytest.approx(drop, nan_ok=True)


def test_precision_is_that_of_the_recalls():
    drop = max_recall_drop(torch.tensor([0.5]), torch.tensor([1.0], dtype=torch.float64))
    assert drop.dtype == torch.float32


@pytest.mark.parametrize("seed", range(5))
def test_it_agrees_with_a_loop_over_samples(seed):
    logits, targets, reference, expected = problem(torch.Generator().manual_seed(seed))
    metric = MaxRecallDrop(reference)
    metric.update(logits, targets)
    assert metric.compute().item() == pytest.approx(expected, abs=1e-6)


def test_a_class_without_samples_takes_no_part():
    metric = MaxRecallDrop(torch.tensor([1.0, 1.0, 0.5]))
    metric.update(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 0, 0, 2]))
    assert metric.compute().item() == pytest.approx(1 / 3)


def test_batches_count_together_until_reset(draw):
    logits, targets, reference, expected = problem(draw)
    metric = MaxRecallDrop(reference)
    for batch in torch.arange(60).split(7):
        metric.update(logits[batch], targets[batch])
    assert metric.compute().item() == pytest.approx(expected, abs=1e-6)
    metric.reset()
    metric.update(torch.arange(5), torch.arange(5))  # all right
    assert metric.compute().item() == 0
    assert torch.equal(metric.reference, reference)


def test_the_reference_goes_where_the_metric_goes(draw):
    logits, targets, reference, expected = problem(draw)
    metric = MaxRecallDrop(reference).to("cpu")
    assert "reference" in dict(metric.named_buffers())
    meta = MaxRecallDrop(reference).to("meta")
    assert meta.reference.device.type == "meta"
    for copied in (metric, metric.clone(), copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        copied.update(logits, targets)
        assert copied.compute().item() == pytest.approx(expected, abs=1e-6)


def test_a_checkpoint_does_not_know_it():
    # A run resumes with another reference, or none: neither may be missing from the checkpoint, or be in its way.
    metric = MaxRecallDrop(torch.tensor([0.5, 0.5]))
    metric.update(torch.tensor([0, 1]), torch.tensor([0, 1]))
    assert not metric.state_dict()
    metric.load_state_dict({})


def test_it_lives_in_a_collection(draw):
    logits, targets, reference, expected = problem(draw)
    metrics = MetricCollection({"mrd": MaxRecallDrop(reference)}, compute_groups=False)
    metrics.update(logits, targets)
    assert metrics.compute()["mrd"].item() == pytest.approx(expected, abs=1e-6)


def test_less_is_better():
    assert MaxRecallDrop.higher_is_better is False


def test_different_numbers_of_classes_are_refused():
    with pytest.raises(SettingError, match="compares classes, got 2 recalls and 3 references"):
        max_recall_drop(torch.zeros(2), torch.zeros(3))
