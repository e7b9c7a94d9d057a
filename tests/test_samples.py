"""Samples in memory, and who holds which of them."""

import numpy as np
import pytest
import torch

from lightning_fl import ClientBatch, DataError, Samples


def test_bytes_are_scaled_then_normalised():
    pixels = torch.tensor([0, 51, 255], dtype=torch.uint8).view(3, 1, 1, 1)
    samples = Samples(pixels, torch.tensor([0, 1, 1]), 2, (0.2,), (0.4,))
    inputs, targets = samples.gather(torch.tensor([2, 1, 0]))
    # 255 -> 1 -> (1 - 0.2) / 0.4 = 2;  51 -> 0.2 -> 0;  0 -> -0.5
    torch.testing.assert_close(inputs.flatten(), torch.tensor([2.0, 0.0, -0.5]))
    assert targets.tolist() == [1, 1, 0]
    assert samples.inputs.dtype == torch.uint8


def test_each_channel_has_its_own_mean_and_deviation():
    image = torch.tensor([0, 255, 51], dtype=torch.uint8).view(1, 3, 1, 1).expand(1, 3, 2, 4)
    samples = Samples(image, torch.zeros(1, dtype=torch.int64), 1, (0.5, 0.5, 0.0), (0.5, 0.25, 0.1))
    inputs, _ = samples.gather(torch.zeros(5, 6, dtype=torch.int64))
    assert inputs.shape == (5, 6, 3, 2, 4)
    # channels: (0 - 0.5) / 0.5, (1 - 0.5) / 0.25, 0.2 / 0.1
    torch.testing.assert_close(inputs[4, 5, :, 1, 3], torch.tensor([-1.0, 2.0, 2.0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_other_types_pass_as_they_are(dtype):
    inputs = torch.arange(6).view(3, 2).to(dtype)
    gathered, _ = Samples(inputs, torch.zeros(3, dtype=torch.int64), 1).gather(torch.tensor([2]))
    assert gathered.dtype == dtype
    assert gathered.tolist() == [[4, 5]]


def test_gather_takes_the_shape_of_the_indices_and_a_copy():
    samples = Samples(torch.arange(10.0).view(5, 2), torch.tensor([0, 1, 2, 1, 0]), 3)
    inputs, targets = samples.gather(torch.tensor([[0, 1, 4], [3, 3, 2]]))
    assert inputs.shape == (2, 3, 2)
    assert inputs[1, 0].tolist() == [6, 7]
    assert targets.tolist() == [[0, 1, 0], [1, 1, 2]]
    inputs.zero_()
    assert samples.inputs.flatten().tolist() == list(range(10))


@pytest.mark.parametrize(("size", "lengths"), [(1, [1] * 5), (2, [2, 2, 1]), (5, [5]), (100, [5])])
def test_batches_are_all_samples_in_order(size, lengths):
    samples = Samples(torch.arange(5.0).view(5, 1), torch.arange(5), 5)
    batches = samples.batches(size)
    seen = list(batches)
    assert len(batches) == len(seen)
    assert [len(targets) for _, targets in seen] == lengths
    assert torch.cat([targets for _, targets in seen]).tolist() == [0, 1, 2, 3, 4]
    assert torch.cat([inputs for inputs, _ in seen]).flatten().tolist() == [0, 1, 2, 3, 4]
    assert len(list(batches)) == len(lengths)  # again from the start


@pytest.mark.parametrize(
    ("n_inputs", "targets", "message"),
    [
        (3, [0, 1], "as many targets as inputs, got 2 and 3"),
        (0, [], "a data set needs a sample, got none"),
        (0, [1], "a data set needs a sample, got none"),
        (2, [0, 3], r"targets must be in \[0, 3\), got 0 to 3"),
        (2, [-1, 2], r"targets must be in \[0, 3\), got -1 to 2"),
    ],
)
def test_unfit_data_are_refused(n_inputs, targets, message):
    with pytest.raises(DataError, match=message):
        Samples(torch.zeros(n_inputs, 2), torch.tensor(targets, dtype=torch.int64), 3)


@pytest.mark.parametrize(
    ("inputs", "targets", "message"),
    [
        (np.zeros((2, 2)), torch.arange(2), r"inputs must be a tensor, got ndarray; use torch.as_tensor\(inputs\)"),
        (torch.zeros(2, 2), [0, 1], "targets must be a tensor, got list"),
        (
            torch.zeros(2, 2),
            torch.zeros(2),
            r"targets must be \(N,\) .*, int64, got \(2,\) of torch.float32",
        ),
        (torch.zeros(2, 2), torch.zeros(2, 1).long(), r"class numbers, int64, got \(2, 1\) of torch.int64"),
    ],
)
def test_samples_are_tensors(inputs, targets, message):
    with pytest.raises(DataError, match=message):
        Samples(inputs, targets, 3)


def test_to_keeps_everything():
    samples = Samples(torch.zeros(2, 1, 1, 1, dtype=torch.uint8), torch.tensor([0, 1]), 7, (0.1,), (0.3,))
    moved = samples.to(torch.device("cpu"))
    assert len(moved) == 2
    assert (moved.n_classes, moved.mean, moved.std) == (7, (0.1,), (0.3,))
    assert moved.inputs.dtype == torch.uint8


def test_class_counts_are_a_table_of_clients_by_classes():
    samples = Samples(torch.zeros(6, 1), torch.tensor([0, 0, 2, 2, 2, 0]), 4)
    batch = ClientBatch(samples, [torch.tensor([0, 2, 3]), torch.tensor([1]), torch.tensor([4, 5])], range(3))
    assert len(batch) == 3
    assert batch.sizes == [3, 1, 2]
    assert batch.class_counts().tolist() == [[1, 0, 2, 0], [1, 0, 0, 0], [1, 0, 1, 0]]
