"""CIFAR-100, on tiny files in its format."""

import shutil
from pathlib import Path

import pytest
import torch

from lightning_fl import DataError
from lightning_fl.data import cifar100
from lightning_fl.data.cifar100 import Cifar100
from tests.data import making
from tests.data.making import cifar_batch, refuse, sha256s, write


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


def test_fine_labels_and_images_are_read_as_they_are(tiny, capsys):
    data = make(tiny)
    data.prepare_data()
    assert capsys.readouterr().out == ""
    train, test = data.load()
    assert train.inputs.shape == test.inputs.shape == (100, 3, 32, 32)
    assert train.inputs.dtype == torch.uint8
    assert train.targets.tolist() == list(range(100))
    assert test.targets.tolist() == list(range(100))[::-1]
    assert (test.inputs[3] == 96).all()
    assert (train.n_classes, len(train.mean)) == (100, 3)


@pytest.mark.parametrize("step", ["prepare_data", "load"])
def test_swapped_files_are_named(tiny, step):
    folder = tiny / "cifar-100-python"
    (folder / "train").rename(folder / "x")
    (folder / "test").rename(folder / "train")
    (folder / "x").rename(folder / "test")
    with pytest.raises(DataError, match="train is corrupt"):
        getattr(make(tiny), step)()


def test_torchvisions_mirror(tiny, monkeypatch, capsys):
    shutil.rmtree(tiny / "cifar-100-python")
    monkeypatch.setattr(cifar100, "TorchvisionCIFAR100", refuse)
    with pytest.raises(DataError, match="CIFAR-100 could not be fetched"):
        make(tiny).prepare_data()
    monkeypatch.setattr(
        cifar100, "TorchvisionCIFAR100", lambda root, download: write(Path(root) / "cifar-100-python", files())
    )
    make(tiny).prepare_data()
    assert "fetched from torchvision's mirror" in capsys.readouterr().out
    assert len(make(tiny).load()[1]) == 100


def test_the_class_table_is_complete():
    names = cifar100.__doc__.split("from 0:\n")[1].replace(".", "").replace("\n", " ").split(", ")
    names = [name.strip() for part in names for name in part.split(",") if name.strip()]
    assert len(names) == 100
    assert names == sorted(names)
