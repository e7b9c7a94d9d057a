"""Files of LEAF's, made here."""

import json

import pytest

from lightning_fl import DataError, Federation
from lightning_fl.data.leaf import Leaf
from lightning_fl.partition.iid import Iid
from lightning_fl.partition.natural import NaturalFile


def write(path, users, counts=None):
    held = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
    path.parent.mkdir(exist_ok=True)
    sizes = [len(y) for _, y in users.values()] if counts is None else counts
    path.write_text(json.dumps({"users": list(users), "num_samples": sizes, "user_data": held}))


def data(folder, partition=None, **settings):
    return Leaf(str(folder), partition=partition or Iid(), federation=Federation(3, 0), **settings)


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "train" / "b.json", {"u2": ([[1, 2], [3, 4]], [1, 0]), "u1": ([[5, 6]], [0])})
    write(tmp_path / "train" / "a.json", {"u9": ([[7, 8]], [2])})
    write(tmp_path / "test" / "t.json", {"u1": ([[9, 9]], [1]), "u9": ([], []), "u7": ([[4, 4]], [3])})
    return tmp_path


def test_files_by_name_users_as_they_come(folder):
    found = data(folder, NaturalFile(order="appearance"), standardize=False)
    found.setup()
    assert found.train.inputs.tolist() == [[7, 8], [1, 2], [3, 4], [5, 6]]
    assert found.train.targets.tolist() == [2, 1, 0, 0]
    assert [part.tolist() for part in found.clients.indices] == [[0], [1, 2], [3]]  # u9, u2, u1
    assert (found.test.inputs.tolist(), found.test.targets.tolist()) == ([[9, 9], [4, 4]], [1, 3])
    assert found.train.n_classes == 4
    assert data(folder, shape=[1, 2, 1]).load()[0].inputs.shape == (4, 1, 2, 1)


def test_characters_of_texts_and_the_next_one(tmp_path):
    pytest.importorskip("tokenizers")
    write(tmp_path / "train" / "a.json", {"HAMLET": (["to b", "o be"], ["e", " "]), "OPHELIA": (["be o"], ["r"])})
    write(tmp_path / "test" / "a.json", {"HAMLET": (["zo"], ["x"])})
    found = data(tmp_path, length=5)
    train, test = found.load()
    assert found.class_names == [" ", "e", "r", "x"]
    assert train.targets.tolist() == [1, 0, 2]
    o, space, b = train.inputs[0, [1, 2, 3]].tolist()
    assert len({o, space, b}) == 3
    assert train.inputs[:, 4].tolist() == [0, 0, 0]
    assert test.inputs.tolist() == [[1, o, 0, 0, 0]]  # an unknown one, and o
    write(tmp_path / "test" / "a.json", {"HAMLET": (["[PAD]"], ["x"])})
    assert data(tmp_path, length=5).load()[1].inputs.tolist() == [[1, 1, 1, 1, 1]]  # text, and no padding


@pytest.mark.parametrize(
    ("name", "users", "counts", "message"),
    [
        ("train/c.json", {"u1": ([[1, 2]], [0])}, None, "c.json has the user u1 again, who is in .*b.json"),
        ("train/c.json", {"u3": ([[1, 2]], [0])}, [2], "user u3 has 2 samples, 1 x and 1 y"),
        ("train/c.json", {"u3": ([[1, 2]], [0, 1])}, [1], "user u3 has 1 samples, 1 x and 2 y"),
        ("train/c.json", {"u3": ([[1, 2, 3]], [0])}, None, "texts, or numbers of one shape"),
        ("train/c.json", {"u3": ([[1, 2]], [[0]])}, None, r"user u3 needs whole numbers or words as y, got \[0\]"),
        ("train/c.json", {"u3": (1, [0])}, [1], "user u3 needs lists as x and y"),
        ("train/c.json", {"u3": ([[1, float("nan")]], [0])}, None, "training sample 4 holds NaN, inf"),
        ("test/c.json", {"u3": ([[1, float("inf")]], [0])}, None, "test sample 0 holds NaN, inf"),
        ("train/c.json", {"u3": ([[1, 2]], [-1])}, None, "whole numbers from 0, or all are words, got -1"),
    ],
)
def test_refuses(folder, name, users, counts, message):
    write(folder / name, users, counts)
    with pytest.raises(DataError, match=message):
        data(folder).load()


def test_a_folder_that_is_none_of_theirs(tmp_path):
    with pytest.raises(DataError, match="has no JSON files; give the folder in which"):
        data(tmp_path).load()


def test_one_sample_takes_a_shape(tmp_path):
    write(tmp_path / "train" / "a.json", {"u": ([[1, 2], [3, 4]], [1, 0])})
    write(tmp_path / "test" / "a.json", {"u": ([[9, 9]], [1])})
    assert data(tmp_path, shape=[1, 2, 1]).load()[1].inputs.shape == (1, 1, 2, 1)
