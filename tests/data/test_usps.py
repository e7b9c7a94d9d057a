"""USPS, on tiny files in LIBSVM's format."""

import bz2
import hashlib
from pathlib import Path

import pytest
import torch

from lightning_fl import DataError
from lightning_fl.data import usps
from lightning_fl.data.usps import Usps
from tests.data import making
from tests.data.making import refuse, write


def line(label, value=0.25, **changes):
    """All features -1 but the first, 1, and feature 18 (row 1, column 1)."""
    values = dict.fromkeys(range(1, 257), -1) | {1: 1, 18: value}
    return f"{label} " + " ".join(f"{i}:{v}" for i, v in values.items()) + " \n"


TRAIN = "".join(line(label, label / 16) for label in [*range(1, 11), 3])
TEST = "".join(line(label) for label in range(10, 0, -1))
PACKED = {"usps.bz2": bz2.compress(TRAIN.encode()), "usps.t.bz2": bz2.compress(TEST.encode())}
PLAIN = {"usps": TRAIN.encode(), "usps.t": TEST.encode()}


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Checksums that fit tiny files, and the folder where to put them."""
    checksums = {name: hashlib.md5(content).hexdigest() for name, content in PACKED.items()}
    monkeypatch.setattr(usps, "CHECKSUMS", checksums)
    monkeypatch.setattr(usps, "TorchvisionUSPS", refuse)
    return tmp_path / "USPS"


def make(folder, **changes):
    return making.make(Usps, root=str(folder.parent), **({"n_train": 11, "n_test": 10} | changes))


@pytest.mark.parametrize("files", [PACKED, PLAIN, {"usps": PLAIN["usps"], "usps.t.bz2": PACKED["usps.t.bz2"]}])
def test_files_are_read_packed_or_plain(tiny, capsys, files):
    data = make(write(tiny, files))
    if len({Path(name).suffix == ".bz2" for name in files}) == 1:
        data.prepare_data()  # nothing to fetch, nothing to say
        assert capsys.readouterr().out == ""
    train, test = data.load()
    assert train.inputs.shape == (11, 1, 16, 16)
    assert train.targets.tolist() == [*range(10), 2]
    assert test.targets.tolist() == list(range(10))[::-1]
    inputs, _ = train.gather(torch.tensor([4]))
    assert inputs[0, 0, :2, :2].tolist() == [[1, 0], [0, (1 + 5 / 16) / 2]]
    assert (train.inputs.dtype, train.inputs.min(), train.inputs.max()) == (torch.float32, 0, 1)


def test_torchvisions_mirror(tiny, monkeypatch, capsys):
    def mirror(root, train, download):
        name = "usps.bz2" if train else "usps.t.bz2"
        write(Path(root), {name: PACKED[name]})

    monkeypatch.setattr(usps, "TorchvisionUSPS", mirror)
    make(tiny).prepare_data()
    assert capsys.readouterr().out == f"USPS: fetched from torchvision's mirror into {tiny}\n"
    assert sorted(path.name for path in tiny.iterdir()) == sorted(PACKED)
    assert len(make(tiny).load()[0]) == 11


def test_files_that_are_not_there(tiny):
    message = (
        r"USPS could not be fetched(.|\n)*Put usps\.bz2, usps\.t\.bz2 into .*, or use the plain files usps and usps\.t"
    )
    with pytest.raises(DataError, match=message):
        make(tiny).prepare_data()
    with pytest.raises(DataError, match=r"usps\.bz2 is missing"):
        make(tiny).load()


@pytest.mark.parametrize("step", ["prepare_data", "load"])
def test_packed_files_that_are_swapped_are_named(tiny, step):
    write(tiny, {"usps.bz2": PACKED["usps.t.bz2"], "usps.t.bz2": PACKED["usps.bz2"]})
    with pytest.raises(DataError, match=r"usps\.bz2 is corrupt: expected MD5"):
        getattr(make(tiny), step)()


def test_a_packed_file_that_is_damaged_inside(tiny, monkeypatch):
    write(tiny, PACKED | {"usps.bz2": PACKED["usps.bz2"][:-20]})
    monkeypatch.setitem(usps.CHECKSUMS, "usps.bz2", hashlib.md5(PACKED["usps.bz2"][:-20]).hexdigest())
    with pytest.raises(DataError, match=r"usps\.bz2 is damaged after line \d+: "):
        make(tiny).load()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TRAIN + line(11), r", line 12: needs a label from 1 to 10 .*, got label 11 and 256 features from -1.0 to 1.0"),
        (TRAIN + line(0), r", line 12: needs a label from 1 to 10 and features 1 to 256 in \[-1, 1\], got label 0 "),
        (TRAIN + line(1, 1.5), r", line 12: needs .* from -1.0 to 1.5"),
        (TRAIN + line(1, "nan"), r", line 12: needs "),
        (TRAIN + line("x"), r", line 12: is not LIBSVM's label 1:v1 2:v2 ...: .*'x'"),
        (TRAIN + line(1, "x"), r", line 12: is not LIBSVM's .*'x'"),
        (TRAIN + line(1).replace(" 7:-1", ""), r", line 12: needs .* got label 1 and 255 features"),
        (TRAIN + line(1).replace(" 7:-1", " 8:-1"), r", line 12: needs "),
        (TRAIN + line(1).replace(" 7:-1", " 7"), r", line 12: is not LIBSVM's"),
        (TRAIN + "\n", r", line 12: is not LIBSVM's"),
        (TRAIN[:-30], r", line 11: needs "),  # cut short within a line
        (
            TRAIN[: -len(line(3, 3 / 16))],
            r" needs 11 images, got 10; it is cut short, swapped, or another split: then ",
        ),
        (TEST, r" needs 11 images, got 10; it is cut short, swapped"),
        (TRAIN.replace("\n10 ", "\n9 "), r" needs samples of all 10 classes, got none of 9"),
        (TRAIN.replace(":-1", ":0"), r" has no negative value; values must be scaled to \[-1, 1\]"),
        (TRAIN.replace("1:1 ", "1:\xe9 ", 1).encode("latin1"), r", line 1: is not in UTF-8"),
    ],
)
def test_a_file_that_is_not_what_it_should_be(tiny, text, message):
    write(tiny, PLAIN | {"usps": text if isinstance(text, bytes) else text.encode()})
    with pytest.raises(DataError, match=rf"USPS/usps{message}"):
        make(tiny).load()


def test_another_split_is_read_where_its_sizes_are_given(tiny):
    write(tiny, {"usps": PLAIN["usps.t"], "usps.t": PLAIN["usps"]})
    train, test = make(tiny, n_train=10, n_test=11).load()
    assert (len(train), len(test)) == (10, 11)
