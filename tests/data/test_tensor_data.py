"""Your own data."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from lightning_fl import DataError, Federation, SettingError, TensorData
from lightning_fl.data.tensor_data import read_pairs
from lightning_fl.partition.iid import Iid


class Stream(IterableDataset):
    """Items that have no number."""

    def __iter__(self):
        return iter([])


class Items(Dataset):
    """A list of items."""

    def __init__(self, *items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


X, Y = torch.arange(24.0).view(12, 2), torch.arange(12) % 3


def test_tensors_reach_the_clients_as_they_are():
    data = TensorData((X, Y), (X[:3], Y[:3]), Iid(), n_clients=4, n_byzantine=2, server_samples=1)
    data.setup()
    assert (data.federation.n_clients, data.federation.n_byzantine, data.n_classes) == (4, 2, 3)
    held = torch.cat(list(data.clients.indices)).sort().values
    inputs, targets = data.train.gather(held)
    assert torch.equal(inputs, X)
    assert torch.equal(targets, Y)
    assert len(data.test) == 3
    assert [batch.samples.targets[batch.indices[z]].item() for z in range(3) for batch in [data.server]] == [0, 1, 2]


def test_bytes_are_scaled_doubles_become_floats_and_arrays_are_fine():
    pixels = torch.full((12, 1, 2, 2), 51, dtype=torch.uint8)
    data = TensorData((pixels, Y.tolist()), (pixels, Y.numpy()), Iid(), n_clients=2, server_samples=0)
    data.setup()
    torch.testing.assert_close(data.train.gather(torch.tensor([0]))[0], torch.full((1, 1, 2, 2), 0.2))
    data = TensorData((np.ones((12, 3)), Y), (np.ones((1, 3)), [0]), Iid(), n_clients=2, server_samples=0)
    data.setup()
    assert data.train.inputs.dtype == torch.float32


def test_classes_are_counted_over_both_splits_unless_told():
    assert TensorData((X, Y), (X[:1], [4])).load()[0].n_classes == 5
    assert TensorData((X, Y), (X, Y), n_classes=7).load()[1].n_classes == 7


def test_classes_are_numbered_from_0():
    with pytest.raises(DataError, match="from 0, got targets from 1 to 3; subtract 1, or give n_classes=4 if class 0"):
        TensorData((X, Y + 1), (X, Y + 1))
    assert TensorData((X, Y + 1), (X, Y + 1), n_classes=4).load()[0].n_classes == 4


def test_a_federation_of_ones_own_replaces_the_two_numbers():
    federation = Federation(5, 1, "replacement", "samples")
    assert TensorData((X, Y), (X, Y), federation=federation).federation is federation


def test_any_data_set_of_torch_is_read():
    whole = TensorData.from_dataset(TensorDataset(X, Y), TensorDataset(X[:2], Y[:2]), n_clients=3)
    train, test = whole.load()
    assert torch.equal(train.inputs, X)
    assert torch.equal(train.targets, Y)
    assert torch.equal(test.inputs, X[:2])


def test_a_share_is_held_out_by_the_seed():
    def split(seed):
        return TensorData.from_dataset(TensorDataset(X, Y), test_share=0.25, seed=seed).load()

    train, test = split(0)
    assert (len(train), len(test)) == (9, 3)
    assert sorted(torch.cat([train.inputs, test.inputs])[:, 0].tolist()) == X[:, 0].tolist()
    assert torch.equal(split(0)[1].inputs, test.inputs)
    assert any(not torch.equal(split(seed)[1].inputs, test.inputs) for seed in (1, 2, 3))
    with pytest.raises(SettingError, match="leaves a split empty"):
        TensorData.from_dataset(TensorDataset(X, Y), test_share=0.01)


def test_samples_are_read_by_number(unchecked):
    with pytest.raises(DataError, match="by their number, got DataLoader; give a Dataset, not its loader"):
        TensorData.from_dataset(DataLoader(Items((X[0], 0))))
    with pytest.raises(DataError, match="by their number, got Stream; give a Dataset"):
        TensorData.from_dataset(Stream())
    with pytest.raises(SettingError, match=r"server_samples must be a whole number of at least 0, got 2\.5"):
        TensorData((X, Y), (X, Y), server_samples=2.5)


def test_images_with_a_palette_have_its_colours():
    colours = [(10, 20, 30), (250, 240, 230)]
    shown = [Image.new("RGB", (2, 2), colour).convert("P", palette=Image.Palette.ADAPTIVE) for colour in colours]
    inputs, _ = read_pairs(Items((shown[0], 0), (shown[1], 1)))
    assert inputs[:, :, 0, 0].tolist() == [list(colour) for colour in colours]
    bits, _ = read_pairs(Items((Image.new("1", (2, 2), 1), 0)))
    assert (bits.dtype, bits[0, 0, 0, 0].item()) == (torch.uint8, 255)


def test_images_become_bytes_with_channels_in_front():
    picture = Image.fromarray(np.arange(24, dtype=np.uint8).reshape(2, 4, 3))
    inputs, targets = read_pairs(Items((picture, 1), (picture, torch.tensor(0))))
    assert inputs.shape == (2, 3, 2, 4)
    assert inputs.dtype == torch.uint8
    assert inputs[0, 1, 1, 2] == 12 + 2 * 3 + 1
    assert targets.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (Items(), "needs a sample"),
        (Items(X[0]), "items \\(input, target\\), got Tensor"),
        (Items((X[0], 0), (X[0], "cat")), "class number, got 'cat' for sample 1"),
        (Items((X[0], 0), (X[0], 1.7)), "class number, got 1.7 for sample 1"),
        (Items((X[0], 0), (torch.zeros(3), 0)), r"one shape, got \(2,\) for sample 0 and \(3,\) for sample 1"),
    ],
)
def test_says_what_a_data_set_lacks(dataset, message):
    with pytest.raises(DataError, match=message):
        TensorData.from_dataset(dataset, dataset)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ((X, Y[:5]), "as many targets as inputs"),
        ((X, Y.float()), "training targets must be one class number per sample"),
        ((X, Y[:, None]), "training targets must be one class number per sample"),
        ((X, Y - 1), r"targets must be in \[0, 2\)"),
        (((5 - X).log(), Y), r"training inputs hold NaN or inf in 10 samples \(first: 2\)"),
        ((X.byte(), Y), r"inputs need one type, bytes being scaled to \[0, 1\], got torch.uint8 and torch.float32"),
        (Items((X[0], 0)), r"\(inputs, targets\), got Items; TensorData.from_dataset reads a data set"),
        ((X, list("ab" * 5)), "the training samples cannot be made tensors .*; give numbers in arrays or tensors"),
        ((X, Y, Y), r"\(inputs, targets\), got tuple\."),
        (X, r"\(inputs, targets\), got Tensor\."),
        ((X.int(), Y), "inputs need one type, got torch.int32 and torch.float32"),
        ((X[:, :1], Y), r"one shape, got \(1,\) and \(2,\)"),
    ],
)
def test_says_what_does_not_fit(train, message, unchecked):
    with pytest.raises(DataError, match=message):
        TensorData(train, (X, Y - 1 if "0, 2" in message else Y))


def test_four_tensors_are_no_two_pairs(unchecked):
    with pytest.raises(DataError, match=r"training samples must be \(inputs, targets\), got Tensor\.$"):
        TensorData(X, Y, X, Y)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_clients": X}, "n_clients must be a whole number of at least 1, got Tensor"),
        ({"n_classes": "2"}, "n_classes must be a whole number of at least 1, got '2'"),
    ],
)
def test_numbers_are_numbers(given, message, unchecked):
    with pytest.raises(SettingError, match=message):
        TensorData((X, Y), (X, Y), **given)


def test_another_seed_draws_another_partition_unless_it_has_its_own():
    def parts(data):
        data.setup()
        return [index.tolist() for index in data.clients.indices]

    follows = TensorData((X, Y), (X, Y), Iid(), n_clients=3, n_byzantine=1, server_samples=1)
    fixed = TensorData((X, Y), (X, Y), Iid(), n_clients=3, n_byzantine=1, server_samples=1, partition_seed=0)
    before = parts(follows)
    assert parts(follows.reseeded(0)) == before == parts(fixed.reseeded(5))
    assert parts(follows.reseeded(5)) != before
    assert parts(follows) == before
    other = follows.reseeded(5)
    assert (other.seed, other.partition_seed, other.federation.seed, other.federation.n_byzantine) == (5, 5, 5, 1)
    assert (follows.seed, follows.federation.seed) == (0, 0)
    assert fixed.reseeded(5, attacked=False).federation.n_byzantine == 0
    own = TensorData((X, Y), (X, Y), federation=Federation(4, 2, "replacement", "uniform", which=[0, 3], seed=7))
    assert own.reseeded(5).federation.seed == 7
    assert own.reseeded(5).federation.byzantine_ids == [0, 3]
    assert own.reseeded(5, attacked=False).federation.honest_ids == [0, 1, 2, 3]


def test_the_server_holds_what_the_rarest_class_allows():
    def held(targets, **settings):
        data = TensorData((X, targets), (X, targets), Iid(), n_clients=2, **settings)
        data.setup()
        return data.server.sizes

    assert held(Y) == [4, 4, 4]
    assert held(torch.tensor([0] * 9 + [1] * 3)) == [3, 3]
    assert held(Y, n_classes=4) == []  # of the fourth class there is none
    assert held(Y, server_samples=np.int64(2)) == [2, 2, 2]
    with pytest.raises(SettingError, match="the server needs 5 samples of class 0, got 4"):
        held(Y, server_samples=5)
    big = torch.arange(90) % 3
    data = TensorData((torch.zeros(90, 1), big), (torch.zeros(90, 1), big), Iid(), n_clients=2)
    data.setup()
    assert data.server.sizes == [20, 20, 20]
