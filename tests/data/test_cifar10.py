"""CIFAR-10, on tiny files in its two formats, and on the JPEG tree that lies beside the repository."""

import os
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.datasets import ImageFolder

from lightning_fl import DataError
from lightning_fl.data import _files, _tree, cifar10
from lightning_fl.data.cifar10 import CLASSES, Cifar10
from tests.data import making
from tests.data.making import cifar_batch, refuse, sha256s, write
from tests.data.shared import shared


def make(root, tree=None):
    return making.make(Cifar10, root=str(root), tree=None if tree is None else str(tree))


def image(i):
    """Red is 10 i, green the row, blue the column."""
    return [10 * i] * 1024 + [row for row in range(32) for _ in range(32)] + list(range(32)) * 32


def batches():
    """Ten batches' worth of format in six: two images in each; batch k holds the classes 2k and 2k + 1."""
    made = {
        f"data_batch_{k}": cifar_batch([image(k), image(k + 10)], {"labels": [2 * k - 2, 2 * k - 1]})
        for k in range(1, 6)
    }
    return made | {"test_batch": cifar_batch([image(i) for i in range(10)], {"labels": list(range(10))[::-1]})}


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Batches in place, and checksums that fit them."""
    monkeypatch.setattr(cifar10, "CHECKSUMS", sha256s(batches()))
    write(tmp_path / "cifar-10-batches-py", batches())
    return tmp_path


def test_original_batches_are_read_as_they_are(tiny):
    train, test = make(tiny).load()
    assert train.inputs.shape == (10, 3, 32, 32)
    assert train.inputs.dtype == torch.uint8
    assert train.targets.tolist() == list(range(10))
    assert test.targets.tolist() == list(range(10))[::-1]
    assert train.targets.dtype == torch.int64
    # Image 2 is the first of the second batch; row 5, column 7.
    assert train.inputs[2, :, 5, 7].tolist() == [20, 5, 7]
    inputs, _ = train.gather(torch.tensor([2]))
    expected = [(20 / 255 - 0.4914) / 0.2470, (5 / 255 - 0.4822) / 0.2435, (7 / 255 - 0.4465) / 0.2616]
    assert inputs[0, :, 5, 7].tolist() == pytest.approx(expected, rel=1e-5)


def test_the_checksums_are_of_the_files_that_are_read():
    assert list(cifar10.CHECKSUMS) == cifar10.TRAIN + cifar10.TEST == list(batches())


@pytest.mark.parametrize("step", ["prepare_data", "load"])
def test_a_batch_that_is_not_the_original_is_never_unpickled(tiny, step):
    folder = tiny / "cifar-10-batches-py"
    (folder / "data_batch_3").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(DataError, match="data_batch_3 is corrupt"):
        getattr(make(tiny), step)()


def plant(folder, train=2, test=1):
    """A tree of png files; image i of class z has red z, green i and blue 0 or 1 (in training or in test)."""
    for blue, (split, n) in enumerate([("train", train), ("test", test)]):
        for z, name in enumerate(CLASSES):
            (folder / split / name).mkdir(parents=True)
            for i in range(n):
                pixels = np.full((32, 32, 3), [z, i, blue], np.uint8)
                pixels[0, 1] = 99
                Image.fromarray(pixels).save(folder / split / name / f"{i:04d}.png")
    return folder


@pytest.fixture
def tree(tmp_path):
    return plant(tmp_path / "tree")


def ready(root, tree):
    data = make(root, tree)
    data.prepare_data()
    return data.load()


def kept(root):
    """Everything under the cache, hidden or not."""
    return sorted(path.name for path in (root / "CIFAR10").rglob("*"))


def test_a_tree_is_decoded(tmp_path, tree):
    train, test = ready(tmp_path, tree)
    assert train.inputs.shape == (20, 3, 32, 32)
    assert train.inputs.dtype == torch.uint8
    assert train.targets.tolist() == [z for z in range(10) for _ in range(2)]
    assert train.inputs[:, :, 5, 7].tolist() == [[z, i, 0] for z in range(10) for i in range(2)]
    assert test.inputs[:, :, 31, 0].tolist() == [[z, 0, 1] for z in range(10)]
    assert (train.inputs[:, :, 0, 1] == 99).all()
    assert (train.inputs[:, :, 1, 0] < 99).all()
    assert (train.mean, train.std) == (cifar10.MEAN, cifar10.STD)


def test_a_tree_is_decoded_once(tmp_path, tree, monkeypatch, capsys):
    first, _ = ready(tmp_path, tree)
    [name] = kept(tmp_path)
    assert capsys.readouterr().out == f"{tree}: decoded 30 images into {tmp_path / 'CIFAR10' / name}\n"
    monkeypatch.setattr(_files.Image, "open", refuse)
    again, _ = ready(tmp_path, tree)
    assert torch.equal(first.inputs, again.inputs)
    assert capsys.readouterr().out == ""


def test_a_tree_that_has_changed_is_decoded_again(tmp_path, tree):
    ready(tmp_path, tree)
    Image.fromarray(np.full((32, 32, 3), 77, np.uint8)).save(tree / "train" / "cat" / "0001.png")
    train, _ = ready(tmp_path, tree)
    assert (train.inputs[7] == 77).all()
    os.remove(tree / "train" / "cat" / "0001.png")
    assert len(ready(tmp_path, tree)[0]) == 19


def test_grey_images_capitals_and_other_files(tmp_path, tree):
    Image.fromarray(np.full((32, 32), 50, np.uint8)).save(tree / "train" / "truck" / "0002.PNG")
    (tree / "train" / "truck" / ".DS_Store").write_bytes(b"x")
    (tree / "train" / "README.txt").write_bytes(b"x")
    train, _ = ready(tmp_path, tree)
    assert len(train) == 21
    assert (train.inputs[20] == 50).all()


def break_tree(folder, how):
    file = folder / "train" / "dog" / "0001.png"
    if how == "cut short":
        file.write_bytes(file.read_bytes()[:-30])
    elif how == "no image":
        file.write_bytes(b"hello")
    elif how == "empty file":
        file.write_bytes(b"")
    elif how == "another size":
        Image.fromarray(np.zeros((32, 31, 3), np.uint8)).save(file)
    elif how == "renamed class":
        (folder / "test" / "dog").rename(folder / "test" / "dogs")
    elif how == "empty class":
        shutil.rmtree(folder / "test" / "dog")
        (folder / "test" / "dog").mkdir()
    elif how == "swapped":
        (folder / "train").rename(folder / "x")
        (folder / "test").rename(folder / "train")
        (folder / "x").rename(folder / "test")
    elif how == "missing":
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("cut short", r"train/dog/0001.png is not an image or is cut short: "),
        ("no image", r"train/dog/0001.png is not an image or is cut short: "),
        ("empty file", r"train/dog/0001.png is not an image or is cut short: "),
        ("another size", r"train/dog/0001.png needs 32 x 32 pixels, got 31 x 32\."),
        ("renamed class", r"test/dog holds no images; a tree has a folder for each of airplane, .*, truck in train"),
        ("empty class", r"test/dog holds no images; a tree has"),
        ("swapped", r"tree has 10 training and 20 test images; are train and test swapped\?"),
        ("missing", r"tree/train/airplane holds no images; a tree has"),
    ],
)
def test_a_tree_that_is_not_what_it_should_be(tmp_path, tree, how, message):
    break_tree(tree, how)
    with pytest.raises(DataError, match=message):
        make(tmp_path, tree).prepare_data()
    assert kept(tmp_path) == []


def test_ctrl_c_while_decoding_keeps_nothing(tmp_path, tree, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_tree.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, tree).prepare_data()
    assert kept(tmp_path) == []


@pytest.mark.parametrize("damage", [lambda text: text[:-100], lambda text: text[:9000] + b"\xff" + text[9001:]])
def test_decoded_images_that_are_damaged(tmp_path, tree, damage):
    ready(tmp_path, tree)
    path = tmp_path / "CIFAR10" / kept(tmp_path)[0]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=f"{path.name} is damaged .*; delete it to have {tree} decoded again"):
        make(tmp_path, tree).load()
    path.unlink()  # as the message says
    assert len(ready(tmp_path, tree)[0]) == 20


def test_a_tree_that_was_not_decoded(tmp_path, tree):
    with pytest.raises(DataError, match=r"\.npz is missing; call prepare_data first"):
        make(tmp_path, tree).load()


@pytest.mark.slow
def test_the_jpeg_tree(tmp_path):
    with tarfile.open(shared("cifar10_jpg.tar.xz")) as archive:  # 300 images per class of each split
        members = [member for member in archive if member.isfile() and int(Path(member.name).stem) < 300]
        archive.extractall(tmp_path / "tree", members, filter="data")
    try:
        train, test = ready(tmp_path, tmp_path / "tree")
        assert train.targets.bincount().tolist() == test.targets.bincount().tolist() == [300] * 10
        folder = ImageFolder(str(tmp_path / "tree" / "train"))
        assert folder.classes == list(CLASSES)
        for i in range(0, 3000, 99):
            expected, label = folder[i]
            assert np.array_equal(train.inputs[i].permute(1, 2, 0), expected)
            assert train.targets[i] == label
        pixels = train.inputs.double() / 255
        assert pixels.mean((0, 2, 3)).tolist() == pytest.approx(cifar10.MEAN, abs=0.02)
        assert pixels.std((0, 2, 3)).tolist() == pytest.approx(cifar10.STD, abs=0.02)
    finally:
        shutil.rmtree(tmp_path)
