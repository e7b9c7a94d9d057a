"""Fashion-MNIST, on tiny files in its format, and once for real."""

import shutil
import subprocess

import pytest
import torch

from lightning_fl.data import fashion_mnist
from lightning_fl.data.fashion_mnist import FashionMnist
from tests.data import making
from tests.data.making import idx_files, refuse, sha256s, write


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A data set in place, and checksums that fit it."""
    monkeypatch.setattr(fashion_mnist, "CHECKSUMS", sha256s(idx_files()))
    write(tmp_path / "FashionMNIST" / "raw", idx_files())
    return tmp_path


def make(root, standardize=True):
    return making.make(FashionMnist, root=str(root), standardize=standardize)


@pytest.mark.parametrize(("standardize", "mean", "std"), [(True, 0.2860, 0.3530), (False, 0.0, 1.0)])
def test_files_are_read_as_they_are(tiny, standardize, mean, std):
    train, test = make(tiny, standardize).load()
    assert train.inputs.shape == (20, 1, 28, 28)
    assert train.inputs.dtype == torch.uint8
    assert train.targets.tolist() == [(i + 3) % 10 for i in range(20)]
    inputs, _ = test.gather(torch.tensor([9]))
    torch.testing.assert_close(inputs[0, 0, 0, :2], (torch.tensor([1, 9 / 255]) - mean) / std)


@pytest.mark.slow
def test_the_real_data_from_debian(tmp_path, monkeypatch):
    known = shutil.which("apt-cache") and subprocess.run(["apt-cache", "show", "dataset-fashion-mnist"]).returncode == 0
    if not known:
        pytest.skip("this system knows no Debian package dataset-fashion-mnist (on Debian: apt-get update)")
    monkeypatch.setattr(fashion_mnist, "TorchvisionFashionMNIST", refuse)
    data = make(tmp_path)
    data.prepare_data()
    train, test = data.load()
    assert train.targets.bincount().tolist() == [6000] * 10
    assert test.targets.bincount().tolist() == [1000] * 10
    inputs, _ = train.gather(torch.arange(60_000))
    assert abs(inputs.mean().item()) < 1e-3
    assert abs(inputs.std().item() - 1) < 1e-3
    # The FRPG paper's Lipschitz constant, 524, is the largest squared norm of pixels in [0, 1].
    pixels, _ = make(tmp_path, standardize=False).load()[0].gather(torch.arange(60_000))
    assert round(pixels.flatten(1).square().sum(1).max().item()) == 524
