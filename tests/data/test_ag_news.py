"""AG-News, on tiny files in its format, and on the files that lie beside the repository."""

import hashlib
import shutil

import pytest

from lightning_fl import DataError
from lightning_fl.data import ag_news
from lightning_fl.data.ag_news import AgNews
from tests.data import making
from tests.data.making import refuse, write
from tests.data.shared import shared

TRAIN = rb""""3","Wall St. Bears","Short\sellers, Wall ""Street""
again"
"4","Car","a #36;10 prize"
"1","Umlaut: \xc3\x9cber","war"
"2","","Sports"
""".replace(rb"\xc3\x9c", b"\xc3\x9c")
TEST = b'"1","a","b"\n"2","c","d"\n"3","e","f"\n"4","g","h"\n'
FILES = {"train.csv": TRAIN, "test.csv": TEST}


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A data set in place, and checksums that fit it."""
    checksums = {name: hashlib.md5(content).hexdigest() for name, content in FILES.items()}
    monkeypatch.setattr(ag_news, "CHECKSUMS", checksums)
    write(tmp_path / "AG_NEWS", FILES)
    return tmp_path


def make(root, **changes):
    given = {"train_csv": None, "test_csv": None, "vocabulary": 1000, "length": 70, "glove": None} | changes
    return making.make(AgNews, root=str(root), **given)


def test_title_and_description_become_one_text(tiny, capsys):
    data = make(tiny)
    data.prepare_data()  # nothing to fetch, nothing to say
    assert capsys.readouterr().out == ""
    (texts, labels), _ = data.read()
    assert texts == [
        'wall st. bears short sellers, wall "street"\nagain',
        "car a #36;10 prize",
        "umlaut: über war",
        " sports",
    ]
    assert labels == [2, 3, 0, 1]
    train, test = data.load()
    assert train.inputs.shape == test.inputs.shape == (4, 70)
    assert train.targets.tolist() == [2, 3, 0, 1]
    assert test.targets.tolist() == [0, 1, 2, 3]
    assert train.inputs[0, 0] == train.inputs[0, 7]  # wall
    assert (train.inputs > 0).sum(1).tolist() == [12, 7, 4, 1]
    assert (test.inputs[:, :2] == 1).sum() == 7  # of these words only "a" is known


@pytest.mark.parametrize("step", ["prepare_data", "load"])
def test_official_files_that_are_swapped_or_cut_short_are_named(tiny, step):
    write(tiny / "AG_NEWS", {"train.csv": TEST})
    with pytest.raises(DataError, match=r"train\.csv is corrupt: expected MD5"):
        getattr(make(tiny), step)()


def test_a_file_of_the_users_own_is_not_verified(tiny):
    write(tiny, {"mine.csv": TEST * 2})
    (tiny / "AG_NEWS" / "train.csv").unlink()
    data = make(tiny, train_csv=str(tiny / "mine.csv"))
    data.prepare_data()
    train, test = data.load()
    assert (len(train), len(test)) == (8, 4)


def test_files_of_spreadsheets_are_read(tmp_path):
    path = tmp_path / "own.csv"
    path.write_bytes(b"\xef\xbb\xbf" + TEST.replace(b"\n", b"\r\n"))
    assert ag_news._read(path) == (["a b", "c d", "e f", "g h"], [0, 1, 2, 3])


def test_nothing_is_fetched_for_files_of_the_users_own(tmp_path, monkeypatch):
    monkeypatch.setattr(ag_news, "ensure", refuse)
    write(tmp_path, FILES)
    data = make(tmp_path, train_csv=str(tmp_path / "train.csv"), test_csv=str(tmp_path / "test.csv"))
    data.prepare_data()
    assert len(data.load()[0]) == 4
    assert not (tmp_path / "AG_NEWS").exists()


def test_official_files_are_fetched(tiny, tmp_path, monkeypatch, capsys):
    shutil.rmtree(tiny / "AG_NEWS")
    write(tiny / "web", FILES)
    monkeypatch.setattr(ag_news, "URL", (tiny / "web").as_uri())
    make(tiny).prepare_data()
    assert "AG-News: fetched from the repository that torchtext used into" in capsys.readouterr().out
    assert len(make(tiny).load()[0]) == 4
    shutil.rmtree(tiny / "AG_NEWS")
    shutil.rmtree(tiny / "web")
    with pytest.raises(
        DataError, match=r"AG-News could not be fetched(.|\n)*data.train_csv=PATH(.|\n)*or data=newsgroups"
    ):
        make(tiny).prepare_data()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            b"class,title,description\n" + TEST,
            r"line 1: needs class \(1 to 4\), title .*, got 3 columns, the first 'cl",
        ),
        (TEST + b'"5","a","b"\n', r"line 5: needs class \(1 to 4\), .* the first '5'"),
        (TEST + b'"0","a","b"\n', r"line 5: needs class \(1 to 4\), .* the first '0'"),
        (TEST + b'"1","a b"\n', r"line 5: needs class .* got 2 columns"),
        (TEST + b'"1","a","b","c"\n', r"line 5: needs class .* got 4 columns"),
        (TEST + b"\n", r"line 5: needs class .* got 0 columns"),
        (b'"1","a\nb","c"\n"2","d";"e"\n', r"line 3: .*; is the file cut short\?"),
        (TRAIN[:-8], r"line 5: unexpected end of data; is the file cut short\?"),
        (TEST + '"1","Müller","b"\n'.encode("latin1"), r"line 5: is not in UTF-8 \(invalid .*, byte 7\)"),
        (TEST[:-12], r"needs samples of all 4 classes, got none of Sci/Tech"),
        (b"", r"needs samples of all 4 classes, got none of World, Sports, Business, Sci/Tech"),
        (b"\x1f\x8b\x08\x00zip", r"line 1: is not in UTF-8"),
        (None, r"is missing\."),
    ],
)
@pytest.mark.parametrize("which", ["train_csv", "test_csv"])
def test_a_file_that_is_not_what_it_should_be(tiny, which, text, message):
    path = tiny / "mine.csv"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(DataError, match=rf"mine\.csv,? {message}"):
        make(tiny, **{which: str(path)}).load()


def test_the_subset_beside_the_repository():
    train_csv, test_csv = shared("ag_news/train_subset.csv"), shared("ag_news/test.csv")
    train, test = make("nowhere", train_csv=str(train_csv), test_csv=str(test_csv), vocabulary=20_000).load()
    assert train.inputs.shape == (7984, 70)
    assert test.targets.bincount().tolist() == [1900] * 4
    assert train.inputs.max() < 20_000
    assert 0.01 < (test.inputs == 1).sum() / (test.inputs > 0).sum() < 0.1
    assert hashlib.md5(test_csv.read_bytes()).hexdigest() == ag_news.CHECKSUMS["test.csv"]
