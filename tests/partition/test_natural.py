"""A federation as it is, in memory."""

import numpy as np
import pytest
import torch

from lightning_fl import DataError, SettingError, TensorData
from lightning_fl.contract import conf
from lightning_fl.partition.natural import Given, Natural, NaturalFile
from lightning_fl.run.assemble import make

X, Y = torch.randn(6, 2), torch.arange(6) % 2


def deal(partition, n_samples, n_clients):
    parts = partition(torch.zeros(n_samples, dtype=torch.int64), n_clients, 1, torch.Generator())
    return [part.tolist() for part in parts]


@pytest.mark.parametrize(
    ("users", "parts"),
    [
        (["cy", "ann", "cy", "bob"], [[1], [3], [0, 2]]),
        (np.array(["cy", "ann", "cy", "bob"]), [[1], [3], [0, 2]]),
        (torch.tensor([7, -1, 7, 3]), [[1], [3], [0, 2]]),
        (np.array([10, 9, 10, 9]), [[1, 3], [0, 2]]),
    ],
)
def test_each_user_is_a_client(users, parts):
    assert deal(Natural(users), 4, len(parts)) == parts


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"order": "appearance"}, [[0, 3, 7], [1, 4], [2, 6], [5], [8]]),
        ({"order": "sorted"}, [[1, 4], [0, 3, 7], [2, 6], [5], [8]]),
        ({"order": "appearance", "n_clients": 4}, [[0, 1, 3, 4, 7], [2, 6], [5], [8]]),  # b a | c | d | e
        ({"order": "appearance", "n_clients": 3}, [[0, 1, 3, 4, 7], [2, 5, 6], [8]]),  # b a | c d | e
        ({"order": "appearance", "min_samples": 2}, [[0, 3, 7], [1, 4], [2, 6]]),
        ({"min_samples": 2, "n_clients": 2}, [[0, 1, 3, 4, 7], [2, 6]]),
    ],
)
def test_users_in_order_are_left_out_or_put_together(settings, parts):
    assert deal(Natural([*"bacbadcbe"], **settings), 9, len(parts)) == parts


def test_the_data_tell_how_many_clients_there_are():
    data = TensorData((X, Y), (X, Y), Natural([*"abcabc"]), server_samples=0)
    data.setup()
    assert data.federation.n_clients == 3
    assert [part.tolist() for part in data.clients.indices] == [[0, 3], [1, 4], [2, 5]]
    with pytest.raises(SettingError, match=r"Natural needs 3 clients, got n_clients=4; set federation\.n_clients=3"):
        TensorData((X, Y), (X, Y), Natural([*"abcabc"]), n_clients=4).setup()


def test_a_list_is_a_partition():
    data = TensorData((X, Y), (X, Y), [[5, 0], np.array([1, 2]), torch.tensor([4, 3])], server_samples=0)
    data.setup()
    assert [part.tolist() for part in data.clients.indices] == [[0, 5], [1, 2], [3, 4]]


def test_whom_nobody_has_is_said():
    assert Natural([*"aab"]).covering
    assert not Natural([*"aab"], min_samples=2).covering


def test_another_federation_has_another_name():
    def name(*parts):
        return Given(parts).note(2, 1)

    assert name([0, 1], [2]) == name([1, 0], [2]) == Natural([*"aab"]).note(2, 1)
    assert len({name([0, 1], [2]), name([0], [1, 2]), name([2], [0, 1])}) == 3
    assert name([0, 1], [2]).startswith("2 clients as given, content sha256:")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Natural(["a", 1]), "natural needs the user of each sample, all strings or all whole numbers"),
        (lambda: Natural(["a", None]), "all strings or all whole numbers"),
        (lambda: Natural([1.0]), "all strings or all whole numbers"),
        (lambda: Natural([*"aab"], n_clients=3), "of 1 sample or more for each of 3 clients, got 2 such users"),
        (
            lambda: Natural([*"aab"], min_samples=2, n_clients=2),
            "of 2 samples or more for each of 2 clients, got 1 such user;",
        ),
        (lambda: Natural([*"aab"], min_samples=3), "of 3 samples or more for each of 1 client, got 0 such users"),
        (lambda: Natural([*"aab"], order="random"), "natural's order must be one of sorted, appearance, got 'random'"),
        (lambda: deal(Natural([*"aab"], min_samples=2), 4, 1), "the user of each of 4 training samples, got 3 users"),
        (lambda: deal(Natural([*"aabbc"], min_samples=2), 4, 2), "of each of 4 training samples, got 5 users"),
        (lambda: Given(["ann"]), r"a list of sample numbers per client .* use fl\.partition\.Natural\(users\)"),
        (lambda: deal(Given([[0], [1]]), 3, 2), "every one of 3 samples needs a client, got 2"),
        (lambda: deal(Given([[0, 1], [1]]), 3, 2), "must give a sample to one client, got sample 1 2 times"),
        (lambda: deal(Given([[0, 1], [3]]), 3, 2), "numbers of samples, 0 to 2"),
        (lambda: deal(Given([[0, 1.5], [2]]), 3, 2), "whole numbers of samples"),
        (lambda: deal(Natural([*"aab"]), 4, 2), "the user of each of 4 training samples, got 3 users; with train_per"),
        (lambda: deal(Natural([*"aabb"]), 3, 2), "the user of each of 3 training samples, got 4 users"),
    ],
)
def test_what_is_no_partition_is_refused(make, message):
    with pytest.raises(SettingError, match=message):
        make()


def table(tmp_path, text):
    (tmp_path / "users.csv").write_text(text, encoding="utf-8-sig")
    return str(tmp_path / "users.csv")


def test_users_are_read_from_a_column(tmp_path):
    path = table(tmp_path, "image,writer\na.png,10\nb.png,9\nc.png,10\n")
    assert deal(NaturalFile(path, "writer"), 3, 2) == [[1], [0, 2]]  # as numbers: 9 before 10
    assert deal(NaturalFile(path, "image", order="appearance", n_clients=2), 3, 2) == [[0, 1], [2]]
    config = conf.compose("partition=natural", f"partition.path={path}", "partition.column=writer").partition
    assert deal(make(config), 3, 2) == [[1], [0, 2]]
    assert deal(NaturalFile(table(tmp_path, "user\ncy\nann\ncy\n")), 3, 2) == [[1], [0, 2]]


@pytest.mark.parametrize(
    ("text", "column", "error", "message"),
    [
        ("image,writer\na,1\n", "user", DataError, "needs a column user, got image, writer; set partition.column"),
        ("image,writer\na,1\n", None, DataError, "needs a column of users, got image, writer"),
        ("", None, DataError, "needs a column of users, got none"),
        ('user\nann\n""\n', None, DataError, "row 2: a sample without a user"),
        ("user\n1.5\n2.5\n", None, SettingError, "users by name or whole number, got 1.5 and others"),
        ("user\nann\n", None, SettingError, "the user of each of 3 training samples, got 1 user;"),
    ],
)
def test_other_tables_are_refused(tmp_path, text, column, error, message):
    with pytest.raises(error, match=message):
        deal(NaturalFile(table(tmp_path, text), column), 3, 1)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"natural cannot read .*: No such file"):
        NaturalFile(str(tmp_path / "no.csv"))
