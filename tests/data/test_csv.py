"""Tables of one's own."""

import pytest
import torch

from lightning_fl import DataError, Federation, SettingError
from lightning_fl.data.csv import Csv
from lightning_fl.partition.iid import Iid
from lightning_fl.partition.natural import NaturalFile

ROWS = ["ward,age,label,weight", "b,1,7,10", "a,3,3,30", "b,5,7,50", "c,7,9,70", "a,1,3,10", "b,3,9,30"]


def data(tmp_path, rows=ROWS, partition=None, n_clients=2, test=ROWS, **settings):
    for name, lines in [("train.csv", rows), ("test.csv", test)]:
        (tmp_path / name).write_text("\n".join(lines))
    settings = {"target": "label", "user": "ward", "server_samples": 0} | settings
    settings = {"test_path": str(tmp_path / "test.csv")} | settings
    return Csv(
        str(tmp_path / "train.csv"), partition=partition or Iid(), federation=Federation(n_clients, 0), **settings
    )


def test_reads_numbers_classes_with_gaps_and_users(tmp_path, capsys):
    found = data(tmp_path, partition=NaturalFile(), n_clients=3, standardize=False)
    found.setup()
    assert found.train.inputs.tolist() == [[1, 10], [3, 30], [5, 50], [7, 70], [1, 10], [3, 30]]
    assert found.train.targets.tolist() == [1, 0, 1, 2, 0, 2]
    assert found.class_names == ["3", "7", "9"]
    assert "The targets 3, 7, 9 are the classes 0 to 2." in capsys.readouterr().err
    assert [part.tolist() for part in found.clients.indices] == [[1, 4], [0, 2, 5], [3]]  # a, b, c


def test_standardises_by_the_training_rows_and_holds_a_share_out(tmp_path):
    train, test = data(tmp_path).load()
    torch.testing.assert_close(train.inputs.mean(0), torch.zeros(2))
    torch.testing.assert_close(train.inputs.std(0, correction=0), torch.ones(2))
    assert torch.equal(train.inputs, test.inputs)
    lines = [ROWS[0], *[f"a,{i},{i % 2},1" for i in range(10)]]
    train, test = data(tmp_path, lines, test_path=None, standardize=False).load()
    assert (len(train), len(test)) == (8, 2)
    assert sorted([*train.inputs[:, 0].tolist(), *test.inputs[:, 0].tolist()]) == list(range(10))


def test_numbers_with_an_offset_keep_what_they_tell(tmp_path):
    rows = ["time,still,label", *[f"{1_700_000_000 + i},0.1,{i % 2}" for i in range(100)]]
    train, test = data(tmp_path, rows, test=[*rows[:2], "1700000000,0.11,0"], user=None).load()
    assert train.inputs.dtype == torch.float32
    expected = [(i - 49.5) / (sum((j - 49.5) ** 2 for j in range(100)) / 100) ** 0.5 for i in range(100)]
    torch.testing.assert_close(train.inputs[:, 0], torch.tensor(expected))
    torch.testing.assert_close(test.inputs[:, 1], torch.tensor([0.0, 0.01]))  # of a constant


def test_users_follow_another_seed(tmp_path):
    rows = ["x,user,label", *[f"{i},u{i % 5},{i % 2}" for i in range(100)]]
    settings = {"test_path": None, "user": "user", "target": "label", "standardize": False}
    first = data(tmp_path, rows, NaturalFile(), 5, **settings)
    first.setup()
    second = first.reseeded(1)
    second.setup()
    for found in (first, second):
        held = [{int(x) % 5 for x in found.train.inputs[part].flatten()} for part in found.clients.indices]
        assert held == [{0}, {1}, {2}, {3}, {4}]


@pytest.mark.parametrize(
    ("labels", "names"), [(["7", "7.0", "8"], ["7", "8"]), (["1e2", "1d3", "a"], ["1d3", "1e2", "a"])]
)
def test_only_digits_are_numbers(tmp_path, labels, names):
    rows = ["x,label", *[f"1,{label}" for label in labels]]
    found = data(tmp_path, rows, test=rows, user=None)
    found.load()
    assert found.class_names == names


def test_a_long_number_is_not_rounded(tmp_path):
    rows = ["x,label", "1,9007199254740993", "2,9007199254740992"]
    assert data(tmp_path, rows, test=rows, user=None).load()[0].n_classes == 2


def test_words_are_classes(tmp_path):
    rows = ["x,label", "1,cat", "2,ant", "3,cat"]
    found = data(tmp_path, rows, test=rows, user=None)
    assert found.load()[0].targets.tolist() == [1, 0, 1]
    assert found.class_names == ["ant", "cat"]


def test_a_column_of_texts(tmp_path):
    pytest.importorskip("tokenizers")
    long = ["review,stars", f"{'word ' * 30_000},5"]
    assert data(tmp_path, long, test=long, user=None, target="stars", text="review").load()[0].inputs.shape == (1, 70)
    rows = ["review,stars", "Good good GOOD film,5", "bad film,1", ",1"]
    columns = {"user": None, "target": "stars", "text": "review"}
    found = data(tmp_path, rows, test=["review,stars", "good book,5"], length=4, **columns)
    train, test = found.load()
    assert train.inputs.tolist() == [[2, 2, 2, 3], [4, 3, 0, 0], [1, 0, 0, 0]]  # good, film, bad by frequency
    assert test.inputs.tolist() == [[2, 1, 0, 0]]
    with pytest.raises(SettingError, match="numbers or texts, got input=\\['age'\\] and text=ward"):
        data(tmp_path, input=["age"], text="ward")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target": "y"}, "train.csv has no column y; it has ward, age, label, weight"),
        ({"rows": [ROWS[0].replace("age", "label"), *ROWS[1:]]}, "train.csv: it has two columns label; rename one"),
        ({"test": [*ROWS, "a,1e39,7,1"], "standardize": False}, "test sample 6 holds NaN, inf or a float32's over"),
        ({"user": None}, "row 1: ward needs a number, got 'b'"),
        ({"input": ["age", "age"]}, "got age twice"),
        ({"rows": [*ROWS, "a,,3,1"]}, "row 7: age needs a number, got ''"),
        ({"rows": [*ROWS, "a,1,,1"]}, "row 7: label is empty"),
        ({"test": [*ROWS, "a,1,5,1"]}, "the test samples have the target 5, which no training sample has"),
        ({"test_path": "nowhere.csv"}, "csv cannot read nowhere.csv: No such file"),
        ({"rows": [*ROWS, "a,1,cat,1"]}, "targets are whole numbers or words, got 3 and 'cat'"),
    ],
)
def test_refuses(tmp_path, settings, message):
    with pytest.raises(DataError, match=message):
        data(tmp_path, **settings).load()


def test_natural_needs_users(tmp_path):
    rows = ["x,label", "1,0", "2,1"]
    with pytest.raises(SettingError, match=r"natural needs users, got none; set partition.path, or data.user"):
        data(tmp_path, rows, NaturalFile(), test=rows, user=None).setup()
