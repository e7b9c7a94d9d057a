"""Your own data."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset
from torchvision.datasets import ImageFolder

from lightning_fl import DataError, Federation, SettingError, TensorData
from lightning_fl.data._items import read
from lightning_fl.partition.iid import Iid
from lightning_fl.run.python import train


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


def test_bytes_are_scaled_and_arrays_are_fine():
    pixels = torch.full((12, 1, 2, 2), 51, dtype=torch.uint8)
    pixels[1:] = 255
    data = TensorData((pixels, Y.tolist()), (pixels, Y.numpy()), Iid(), n_clients=2, server_samples=0)
    data.setup()
    torch.testing.assert_close(data.train.gather(torch.tensor([0]))[0], torch.full((1, 1, 2, 2), 0.2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inputs_have_the_type_in_which_a_run_computes(dtype):
    third = np.full((12, 3), 2 / 3)
    for inputs in (third, torch.full((12, 3), 170, dtype=torch.uint8)):
        data = TensorData((inputs, Y), (inputs, Y), Iid(), n_clients=2, server_samples=1)
        data.setup()
        data.place(torch.device("cpu"), dtype)
        for samples in (data.train, data.test, data.clients.samples, data.server.samples):
            found, _ = samples.gather(torch.tensor([0]))
            assert found.dtype == dtype
            assert found[0, 0].item() == pytest.approx(2 / 3, rel=1e-15 if dtype == torch.float64 else 1e-7)
    data = TensorData((third, Y), (third.astype(np.float32), Y), Iid(), n_clients=2)
    data.setup()


def test_classes_are_counted_over_both_splits_unless_told():
    assert TensorData((X, Y), (X[:1], [3])).load()[0].n_classes == 4
    assert TensorData((X, Y), (X, Y), n_classes=7).load()[1].n_classes == 7


def test_classes_are_numbered_from_0():
    with pytest.raises(
        DataError, match=r"got targets from 1 to 3, none of them 0; number them anew .* give n_classes=4"
    ):
        TensorData((X, Y + 1), (X, Y + 1))
    with pytest.raises(
        DataError, match="from 0 without gaps, got targets from 0 to 200, none of them 1 or 2 or 3; num"
    ):
        TensorData((X, 100 * Y), (X, 100 * Y))
    assert TensorData((X, Y + 1), (X, Y + 1), n_classes=4).load()[0].n_classes == 4
    assert TensorData((X, Y), (X, Y), class_names=list("abcd")).load()[0].n_classes == 4


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


def test_samples_are_read_by_number():
    with pytest.raises(DataError, match="by their number, got DataLoader; give a Dataset, not its loader"):
        TensorData.from_dataset(DataLoader(Items((X[0], 0))))
    with pytest.raises(DataError, match="by their number, got Stream; give a Dataset"):
        TensorData.from_dataset(Stream())
    with pytest.raises(SettingError, match=r"tensor_data needs a whole number or .* as server_samples, got 2\.5"):
        TensorData((X, Y), (X, Y), server_samples=2.5)


def test_images_with_a_palette_have_its_colours():
    colours = [(10, 20, 30), (250, 240, 230)]
    shown = [Image.new("RGB", (2, 2), colour).convert("P", palette=Image.Palette.ADAPTIVE) for colour in colours]
    inputs = read(Items((shown[0], 0), (shown[1], 1))).inputs
    assert inputs[:, :, 0, 0].tolist() == [list(colour) for colour in colours]
    bits = read(Items((Image.new("1", (2, 2), 1), 0))).inputs
    assert (bits.dtype, bits[0, 0, 0, 0].item()) == (torch.uint8, 255)


def test_images_become_bytes_with_channels_in_front():
    picture = Image.fromarray(np.arange(24, dtype=np.uint8).reshape(2, 4, 3))
    inputs, targets, users, classes = read(Items((picture, 1), (picture, torch.tensor(0))))
    assert (users, classes) == ([], None)
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
        (Items((X[0], 0), (X[0].byte(), 0)), "one type, got torch.float32 for sample 0 and torch.uint8 for sample 1"),
        (Items((X[0], 0), (X[0],)), r"sample 1 lacks one of the parts \[0, 1\]: tuple"),
        (Items((X[0], 0, 3)), r"an item has the parts \[0, 1, 2\]; say which are meant: input=..., target=..."),
        (Items((X[0], Y)), r"class number, got tensor\(\["),
        (Items(("a cat", 0)), "an input is numbers or an image, got str for sample 0"),
        (Items({"img": X[0], "id": 3, "label": 0}), r"the parts \['img', 'id', 'label'\]; say which are meant"),
        (Items({"img": X[0], "species": 0}), r"the parts \['img', 'species'\]; say which are meant"),
        (Items((Image.new("I;16", (2, 2)), 0)), "sample 0 must be an image with 8 bits per colour, got mode I;16"),
        ({"train": X, "test": X}, r'the data have splits \(train, test\); give one, such as dataset\["train"\]'),
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
        ((X, torch.eye(12)[:, :3].long()), r"targets must be one class number .* \(12, 3\) .* give y.argmax\(1\)"),
        ((X, Y - 1), r"targets must be in \[0, 2\)"),
        (((5 - X).log(), Y), r"training inputs hold NaN or inf in 10 samples \(first: 2\)"),
        ((np.ma.array(X, mask=X > 20), Y), r"training samples have masked values, .* give x.filled\(0\)"),
        ((X.numpy().astype("uint16"), Y), "inputs must be .* got torch.uint16; give x.float"),
        ((X.cfloat(), Y), "inputs must be real, got torch.complex64"),
        ((X.to_sparse(), Y), r"inputs must be dense, .* give x.to_dense\(\)"),
        ((X.byte(), Y), r"inputs need one type, bytes being scaled to \[0, 1\], got torch.uint8 and torch.float32"),
        (Items((X[0], 0)), r"\(inputs, targets\), got Items; TensorData.from_dataset reads a data set"),
        ((X, list("ab" * 5)), "the training samples cannot be made tensors .*; give numbers in arrays or tensors"),
        ((X, Y, Y), r"\(inputs, targets\), got tuple\."),
        (X, r"\(inputs, targets\), got Tensor\."),
        ((X.int(), Y), "inputs need one type, got torch.int32 and torch.float32"),
        ((X[:, :1], Y), r"one shape, got \(1,\) and \(2,\)"),
    ],
)
def test_says_what_does_not_fit(train, message):
    with pytest.raises(DataError, match=message):
        TensorData(train, (X, Y - 1 if "0, 2" in message else Y))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (X > 5, torch.float32),  # 0 and 1
        (X.to(torch.int16), torch.int64),  # tokens
        (X.half(), torch.float32),
        (np.ma.array(X, mask=False), torch.float32),
    ],
)
def test_numbers_become_what_models_compute_with(given, expected):
    train, _ = TensorData((given, Y[:, None]), (given, Y)).load()
    assert train.inputs.dtype == expected
    assert torch.equal(train.inputs.double(), torch.as_tensor(np.asarray(given)).double())
    assert torch.equal(train.targets, Y)


def test_bytes_that_may_be_no_pixels_are_asked_for():
    with pytest.raises(
        DataError, match=r"bytes are taken for pixels and divided by 255, got none above 23; give x\.fl"
    ):
        TensorData((X.byte(), Y), (X.byte(), Y))


def test_two_scales_are_not_joined():
    white, shade = torch.full((12, 1, 4, 4), 255.0), torch.rand(12, 1, 4, 4)
    for ours, others in [(white, shade), (shade, white), (torch.cat([shade[:6], white[:6]]), shade)]:
        with pytest.raises(
            DataError, match=r"one scale, got whole numbers up to 255 \(\w+ sample [06]\) beside .* 0\)"
        ):
            TensorData((ours, Y), (others, Y))
    TensorData((white, Y), (white, Y))
    TensorData((shade, Y), (shade.round(), Y))


def test_parts_of_items_are_found_or_named():
    rows = [{"image": x, "label": y, "writer": f"w{y % 2}"} for x, y in zip(X, Y.tolist(), strict=True)]
    columns = {"image": X, "label": Y, "writer": [row["writer"] for row in rows]}
    others = [(x, np.array([y]), {"site": 3}) for x, y in zip(X, Y.tolist(), strict=True)]  # MedMNIST's, WILDS'
    plain = [{"x": x, "label": [y]} for x, y in zip(X, Y.tolist(), strict=True)]
    for found in (
        read(Items(*rows), input="image"),
        read(Items(*rows), user="writer"),
        read(columns, "image", "label"),
        read(others),
        read([(y, x) for x, y in zip(X, Y, strict=True)], input=1, target=0),
        read(plain),
    ):
        assert torch.equal(found.inputs, X)
        assert torch.equal(found.targets, Y)
    data = TensorData.from_dataset(Items(*rows), TensorDataset(X, Y), user="writer", server_samples=0)
    data.setup()
    assert [part.tolist() for part in data.clients.indices] == [
        [i for i in range(12) if Y[i] % 2 == user] for user in (0, 1)
    ]
    assert data.federation.n_clients == 2
    few = TensorData.from_dataset(Items(*rows), TensorDataset(X, Y), user="writer", server_samples=0, train_per_class=1)
    few.setup()
    assert [sorted(few.train.targets[part].tolist()) for part in few.clients.indices] == [[0, 2], [1]]
    kept = TensorData.from_dataset(Items(*rows), test_share=0.25, user="writer", server_samples=0)
    kept.setup()
    assert [set(kept.train.targets[part].tolist()) for part in kept.clients.indices] == [{0, 2}, {1}]
    with pytest.raises(SettingError, match="user='writer' makes each user a client, got a partition, too"):
        TensorData.from_dataset(Items(*rows), Items(*rows), user="writer", partition=Iid())


class Named(Items):
    """A data set of torchvision's kind."""

    classes = ("ant", "bee", "cat")


def test_columns_have_one_length():
    with pytest.raises(DataError, match="columns need one length, got 2 of x, 1 of label"):
        TensorData.from_dataset({"x": [[1.0], [2.0]], "label": [0]})


def test_names_of_classes_are_taken_over():
    whole = Named(*zip(X, Y, strict=True))
    assert TensorData.from_dataset(whole).class_names == ["ant", "bee", "cat"]
    assert TensorData.from_dataset(Subset(whole, range(6)), Subset(whole, [0])).class_names == ["ant", "bee", "cat"]
    assert TensorData.from_dataset(ConcatDataset([whole, whole])).class_names == ["ant", "bee", "cat"]
    assert TensorData.from_dataset(whole, class_names=list("abc")).class_names == list("abc")
    huggingface = Items(*({"image": x, "label": y} for x, y in zip(X, Y, strict=True)))
    huggingface.features = {"image": None, "label": SimpleNamespace(names=["ant", "bee", "cat", "dog"])}
    data = TensorData.from_dataset(huggingface)
    assert (data.class_names, data.load()[0].n_classes) == (["ant", "bee", "cat", "dog"], 4)
    whole.target_transform = lambda y: 2 - y  # who knows what the numbers mean now
    assert TensorData.from_dataset(whole).class_names is None


@pytest.mark.drawn
def test_a_run_knows_its_classes_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = train(nn.Linear(2, 3), TensorData((X, Y), (X, Y), Iid(), n_clients=3, class_names=list("abc")), rounds=1)
    assert run.summary["classes"] == ["a", "b", "c"]
    assert "b" in run.plot()["recall"].axes[0].get_legend_handles_labels()[1]
    with pytest.raises(DataError, match="3 classes need as many names, got 2"):
        TensorData((X, Y), (X, Y), n_classes=3, class_names=["a", "b"]).setup()


def test_names_that_do_not_belong_together_are_refused():
    whole, other = Named(*zip(X, Y, strict=True)), Named(*zip(X, Y, strict=True))
    other.classes = ["ant", "cat", "bee"]
    for make in (lambda: TensorData.from_dataset(whole, other), lambda: read(ConcatDataset([whole, other]))):
        with pytest.raises(DataError, match="the same classes in the same order, got ant, bee, cat and ant, cat, bee"):
            make()
    other.classes = ["test", "train"]
    with pytest.raises(DataError, match="classes test and train look like splits; read each folder"):
        read(other)


def test_the_file_that_cannot_be_read_is_named(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        Image.fromarray(np.random.default_rng(0).integers(0, 255, (9, 9, 3), np.uint8)).save(tmp_path / name / "0.png")
    path = tmp_path / "b" / "0.png"
    path.write_bytes(path.read_bytes()[:120])
    with pytest.raises(DataError, match=rf"sample 1 \({path}\) cannot be read: OSError: .*truncated"):
        read(Subset(ImageFolder(tmp_path), [0, 1]))
    Image.fromarray(np.full((9, 9), 20000, np.uint16)).save(tmp_path / "a" / "0.png")
    with pytest.raises(DataError, match=r"a/0\.png must be an image with 8 bits per colour, got mode I;16"):
        read(ImageFolder(tmp_path))  # whose loader makes it white


def test_four_tensors_are_no_two_pairs():
    with pytest.raises(DataError, match=r"training samples must be \(inputs, targets\), got Tensor\.$"):
        TensorData(X, Y, X, Y)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_clients": X}, "federation needs a whole number as n_clients, got Tensor"),
        ({"n_classes": "2"}, "tensor_data needs a whole number or null as n_classes, got '2'"),
    ],
)
def test_numbers_are_numbers(given, message):
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


def test_few_features_may_have_any_scale():
    train, test = TensorData((torch.tensor([[200.0, 3.0]] * 12), Y), (torch.rand(12, 2), Y)).load()
    assert train.inputs.max() == 200
    assert test.inputs.max() <= 1
