"""Data sets of Hugging Face, made here."""

import pytest
import torch
from PIL import Image

from lightning_fl import DataError, Federation
from lightning_fl.data.huggingface import HuggingFace
from lightning_fl.partition.iid import Iid
from lightning_fl.partition.natural import NaturalFile

datasets = pytest.importorskip("datasets")


def grey(value, mode="L", side=4):
    return Image.new("L", (side, side), value).convert(mode)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pictures of two modes and sides with classes and writers, in two splits."""
    path = tmp_path_factory.mktemp("saved")
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["no", "yes"]),
            "writer": datasets.Value("string"),
        }
    )
    columns = {
        "image": [grey(10), grey(20, "RGB"), grey(30, side=6), grey(40)],
        "label": [0, 1, 1, 0],
        "writer": ["b", "a", "b", "a"],
    }
    split = datasets.Dataset.from_dict(columns, features=features)
    datasets.DatasetDict({"train": split, "validation": split}).save_to_disk(str(path))
    return path


def data(folder, partition=None, **settings):
    settings = {"side": 4, "server_samples": 0, "standardize": False} | settings
    return HuggingFace(str(folder), partition=partition or Iid(), federation=Federation(2, 0), **settings)


def test_reads_pictures_names_of_classes_and_users(folder):
    found = data(folder, NaturalFile(), user="writer")
    found.prepare_data()
    found.setup()
    assert found.train.inputs.shape == (4, 1, 4, 4)
    assert found.train.inputs[:, 0, 0, 0].tolist() == [10, 20, 30, 40]
    assert found.train.targets.tolist() == [0, 1, 1, 0]
    assert found.class_names == ["no", "yes"]
    assert [part.tolist() for part in found.clients.indices] == [[1, 3], [0, 2]]  # a, b
    assert len(found.test) == 4


def test_one_split_of_vectors_gives_a_share(tmp_path):
    columns = {"x": [[float(i), 1.0] for i in range(10)], "y": [3, 5] * 5}
    datasets.Dataset.from_dict(columns).save_to_disk(str(tmp_path / "one"))
    found = data(tmp_path / "one", input="x", target="y", side=None)
    train, test = found.load()
    assert (len(train), len(test), train.n_classes) == (8, 2, 2)
    assert found.class_names == ["3", "5"]


def written(path, **splits):
    """Write splits of vectors, each with its labels and its names of classes."""
    held = {}
    for name, (labels, names) in splits.items():
        features = datasets.Features(
            {"x": datasets.List(datasets.Value("float32")), "label": datasets.ClassLabel(names=names)}
        )
        columns = {"x": [[float(i), 1.0] for i in range(len(labels))], "label": labels}
        held[name] = datasets.Dataset.from_dict(columns, features=features)
    datasets.DatasetDict(held).save_to_disk(str(path))
    return data(path, input="x", side=None)


def test_splits_number_classes_alike_and_every_sample_has_one(tmp_path):
    found = written(tmp_path / "two", train=([0, 1], ["cat", "dog"]), test=([0, 1], ["dog", "cat"]))
    with pytest.raises(DataError, match="same classes in the same order, got cat, dog and dog, cat"):
        found.load()
    found = written(tmp_path / "none", train=([-1, 0, 1], ["cat", "dog"]), test=([0, 1], ["cat", "dog"]))
    with pytest.raises(DataError, match="targets are numbers from 0 to 1, got -1; leave out samples without a class"):
        found.load()


def test_a_missing_picture_is_named(tmp_path):
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    columns = {"image": [grey(1), None], "label": [0, 1]}
    datasets.Dataset.from_dict(columns, features=features).save_to_disk(str(tmp_path / "one"))
    with pytest.raises(DataError, match="sample 1 cannot be read: ValueError: no image, but None"):
        data(tmp_path / "one").load()


def test_words_are_classes_and_texts_become_tokens(tmp_path, capsys):
    pytest.importorskip("tokenizers")
    columns = {"text": ["a b b", "B c", "a"], "label": ["no", "yes", "no"], "writer": ["x", "y", "x"]}
    datasets.Dataset.from_dict(columns).save_to_disk(str(tmp_path / "one"))
    found = data(tmp_path / "one", input="text", side=None, user="writer", test_share=0.34, length=3)
    train, test = found.load()
    assert sorted([*train.targets.tolist(), *test.targets.tolist()]) == [0, 0, 1]
    assert (train.inputs.shape, train.inputs.dtype) == ((2, 3), torch.int64)
    assert found.class_names == ["no", "yes"]
    assert "The targets no, yes are the classes 0 to 1." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target": "class"}, "has no column class; it has image, label, writer"),
        ({"test": "held"}, "has no split held; it has train, validation"),
        ({"side": None}, "inputs need one shape"),
    ],
)
def test_refuses(folder, settings, message):
    with pytest.raises(DataError, match=message):
        data(folder, **settings).load()


@pytest.mark.parametrize("name", ["./misspelt", "/no/such/folder", "a/b/c", "~/mine", "two words"])
def test_what_can_only_be_a_folder_is_not_asked_of_the_hub(name):
    with pytest.raises(DataError, match=r"is neither a folder nor a name on the hub, such as NAME or OWNER/NAME"):
        data(name).load()


def test_a_folder_that_is_none_of_theirs(tmp_path):
    with pytest.raises(DataError, match=r"cannot be read: \w+: \w.*; give its name on the hub, or a folder of save_"):
        data(tmp_path).load()
