"""CIFAR-100, on tiny files in its format."""

import pytest
import torch

from lightning_fl.data import cifar100
from lightning_fl.data.cifar100 import Cifar100
from tests.data import making
from tests.data.making import cifar_batch, sha256s, write


def files():
    """One image of each class; image i is filled with the byte i."""

    def batch(order):
        return cifar_batch([[i] * 3072 for i in order], {"fine_labels": order, "coarse_labels": [0] * len(order)})

    return {"train": batch(list(range(100))), "test": batch(list(range(100))[::-1])}


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A data set in place, and checksums that fit it."""
    monkeypatch.setattr(cifar100, "CHECKSUMS", sha256s(files()))
    write(tmp_path / "cifar-100-python", files())
    return tmp_path


def make(root):
    return making.make(Cifar100, root=str(root))


def test_fine_labels_and_images_are_read_as_they_are(tiny):
    train, test = make(tiny).load()
    assert train.inputs.shape == test.inputs.shape == (100, 3, 32, 32)
    assert train.inputs.dtype == torch.uint8
    assert train.targets.tolist() == list(range(100))
    assert test.targets.tolist() == list(range(100))[::-1]
    assert (test.inputs[3] == 96).all()
    assert (train.n_classes, len(train.mean)) == (100, 3)


def test_the_class_table_is_complete():
    names = cifar100.__doc__.split("from 0:\n")[1].replace(".", "").replace("\n", " ").split(", ")
    names = [name.strip() for part in names for name in part.split(",") if name.strip()]
    assert len(names) == 100
    assert names == sorted(names)
