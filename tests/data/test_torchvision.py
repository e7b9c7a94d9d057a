"""torchvision's own sets, with FakeData and small ones in their place."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lightning_fl import DataError, SettingError
from lightning_fl.data.torchvision import Torchvision, datasets
from tests.data.making import make

FAKE = {"size": 50, "image_size": [3, 6, 6], "num_classes": 4}


class Small(datasets.VisionDataset):
    """Images of one grey, labelled from 1 as EMNIST's letters are; torchvision's kinds of splits."""

    def __init__(self, root, greys=(10, 20, 30), labels=(1, 2, 4)):
        super().__init__(root)
        self.items = list(zip(greys, labels, strict=True))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        grey, label = self.items[i]
        image = Image.fromarray(np.full((4, 4), grey, dtype=np.uint8))
        return (image if self.transform is None else self.transform(image)), label


class ByTrain(Small):
    def __init__(self, root, train=True, transform=None, download=False):
        super().__init__(root, *([(10, 20, 30), (1, 2, 4)] if train else [(40,), (4,)]))
        self.transform = transform
        if download:
            Path(root, "fetched").touch()
        if not Path(root, "fetched").exists():
            raise RuntimeError("Dataset not found.\nYou can use download=True")


class ByVal(Small):
    def __init__(self, root, split="train"):
        if split not in ("train", "val"):
            raise ValueError(f"no split {split}")
        super().__init__(root, *([(10, 20), (0, 1)] if split == "train" else [(30,), (2,)]))


class PassedOn(Small):
    """As ImageNet, which knows neither train nor download and passes the rest on to a class that does not, either."""

    def __init__(self, root, split="train", **kwargs):
        super().__init__(root, *([(10, 20), (0, 1)] if split == "train" else [(30,), (1,)]), **kwargs)


@pytest.fixture
def small(monkeypatch):
    for kind in (ByTrain, ByVal, PassedOn):
        monkeypatch.setattr(datasets, kind.__name__, kind, raising=False)


def test_a_set_without_test_split_gives_a_fifth():
    data = make(Torchvision, dataset="FakeData", options=FAKE)
    data.prepare_data()
    data.setup()
    assert [len(data.train), len(data.test), data.n_classes] == [40, 10, 4]
    assert data.train.inputs.shape == (40, 3, 6, 6)
    assert data.train.inputs.dtype == torch.uint8
    inputs, _ = data.train.gather(torch.arange(40))
    torch.testing.assert_close(inputs.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(inputs.std((0, 2, 3), correction=0), torch.ones(3))
    again = make(Torchvision, dataset="FakeData", options=FAKE).load()
    assert torch.equal(again[1].inputs, data.test.inputs)
    other = make(Torchvision, dataset="FakeData", options=FAKE, partition_seed=1).load()
    assert not torch.equal(other[1].inputs, data.test.inputs)


def test_pixels_stay_and_classes_are_numbered_from_0(small, tmp_path):
    data = Torchvision("ByTrain", str(tmp_path), standardize=False, server_samples=0)
    data.prepare_data()
    train, test = data.load()
    assert train.targets.tolist() == [0, 1, 2]
    assert test.targets.tolist() == [2]
    assert train.inputs[:, 0, 0, 0].tolist() == [10, 20, 30]
    torch.testing.assert_close(test.gather(torch.tensor([0]))[0], torch.full((1, 1, 4, 4), 40 / 255))


def test_what_is_passed_on_is_not_guessed(small, tmp_path):
    data = Torchvision("PassedOn", str(tmp_path), standardize=False, server_samples=0)
    data.prepare_data()
    assert [len(samples) for samples in data.load()] == [2, 1]


def test_images_are_resized(small, tmp_path):
    data = Torchvision("ByTrain", str(tmp_path), side=7)
    data.prepare_data()
    assert data.load()[0].inputs.shape == (3, 1, 7, 7)


def test_what_is_not_there_is_told_with_a_way_out(small, tmp_path):
    with pytest.raises(DataError, match=r"could not make ByTrain .*RuntimeError: Dataset not found\.;.*data=mnist_5k"):
        Torchvision("ByTrain", str(tmp_path)).load()
    with pytest.raises(DataError, match="ByVal tests on class 2"):
        Torchvision("ByVal", str(tmp_path)).load()


def folders(root, **greys):
    """Image files PATH/0.png of one grey, by path."""
    for path, grey in greys.items():
        folder = root / path.replace("_", "/")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((5, 4), grey, dtype=np.uint8)).save(folder / "0.png")
    return str(root)


def test_split_folders_are_no_classes(tmp_path):
    root = folders(tmp_path, train_bee=20, train_ant=10, test_ant=30, test_bee=40, val_ant=50, val_bee=60)
    data = Torchvision("ImageFolder", root, side=4, standardize=False)
    data.prepare_data()
    train, test = data.load()
    assert data.class_names == ["ant", "bee"]
    assert (train.inputs[:, 0, 0, 0].tolist(), train.targets.tolist()) == ([10, 20], [0, 1])
    assert (test.inputs[:, 0, 0, 0].tolist(), test.targets.tolist()) == ([30, 40], [0, 1])
    assert train.inputs.shape == (2, 3, 4, 4)


def test_a_folder_of_classes_gives_a_fifth(tmp_path):
    root = folders(tmp_path, train=10, car=20)  # a train is no split without a test
    for i in range(1, 5):
        Image.fromarray(np.full((5, 4), i, dtype=np.uint8)).save(tmp_path / "car" / f"{i}.png")
    data = Torchvision("ImageFolder", root)
    assert data.load()[0].n_classes == 2
    assert [len(samples) for samples in data.load()] == [5, 1]
    assert data.class_names == ["car", "train"]


def test_a_folder_of_training_images_alone_gives_a_fifth(tmp_path):
    root = folders(tmp_path, train_ant=10, train_bee=20)
    for i in range(1, 5):
        Image.fromarray(np.full((5, 4), i, dtype=np.uint8)).save(tmp_path / "train" / "ant" / f"{i}.png")
    data = Torchvision("ImageFolder", root)
    assert [len(samples) for samples in data.load()] == [5, 1]
    assert data.class_names == ["ant", "bee"]
    folders(tmp_path, dev_ant=10, dev_bee=20)
    with pytest.raises(DataError, match="the classes dev and train look like splits"):
        Torchvision("ImageFolder", root).load()


def test_folders_that_do_not_fit_are_refused(tmp_path):
    root = folders(tmp_path, train_bee=20, train_ant=10, test_bee=40)
    with pytest.raises(DataError, match="the same classes in the same order, got ant, bee and bee"):
        Torchvision("ImageFolder", root).load()
    Image.fromarray(np.full((5, 4), 999, np.uint16)).save(tmp_path / "train" / "bee" / "0.png")
    with pytest.raises(DataError, match=r"train/bee/0\.png must be an image with 8 bits per colour, got mode I;16"):
        Torchvision("ImageFolder", root).load()


@pytest.mark.parametrize("name", ["Kmnist", "VisionDataset2", "wrap_dataset_for_transforms_v2"])
def test_names_are_torchvisions(name):
    with pytest.raises(SettingError, match=r"name of a class in torchvision\.datasets"):
        Torchvision(name)
    with pytest.raises(SettingError, match=r"torchvision needs side >= 1, got 0"):
        Torchvision("KMNIST", side=0)
