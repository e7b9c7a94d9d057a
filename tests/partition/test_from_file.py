"""A partition read from a file."""

import pytest
import torch
from hydra.utils import instantiate

from lightning_fl import DataError, SettingError
from lightning_fl.contract import conf
from lightning_fl.partition.from_file import FromFile
from lightning_fl.partition.iid import Iid


@pytest.fixture
def table(tmp_path):
    """Write a file and give the partition that reads it."""

    def write(content):
        path = tmp_path / "clients.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return FromFile(str(path))

    return write


def deal(partition, n_samples, n_clients):
    return partition(torch.zeros(n_samples, dtype=torch.int64), n_clients, 1, torch.Generator())


def test_a_file_by_hand(table):
    parts = deal(table("sample,client\n3,0\n0,1\n2,0\n1,2\n4,1\n"), 5, 3)
    assert [part.tolist() for part in parts] == [[2, 3], [0, 4], [1]]
    assert all(part.dtype == torch.int64 for part in parts)


def test_any_partition_can_be_replayed(table):
    parts = Iid()(torch.zeros(500, dtype=torch.int64), 7, 1, torch.Generator().manual_seed(0))
    rows = [f"{sample},{client}" for client, part in enumerate(parts) for sample in part.tolist()]
    again = deal(table("\n".join(["sample,client", *rows[::-1]])), 500, 7)
    assert all(torch.equal(a, b) for a, b in zip(again, parts, strict=True))


@pytest.mark.parametrize(
    "content",
    [
        b"sample,client\r\n0,1\r\n1,0\r\n",  # Windows
        b"\xef\xbb\xbfsample,client\n0,1\n1,0",  # Excel's byte order mark, no newline at the end
        b'"sample","client"\n"0","1"\n"1","0"\n',
        b"sample, client\n\n 0, 1\n1 ,0\n\n",
    ],
)
def test_what_spreadsheets_write_is_read(table, content):
    assert [part.tolist() for part in deal(table(content), 2, 2)] == [[1], [0]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 1: the header must be sample,client, got ''"),
        ("0,1\n1,0\n", "line 1: the header must be sample,client, got '0,1'"),
        ("sample;client\n0;1\n", "line 1: the header must be sample,client, got 'sample;client'"),
        ("client,sample\n0,1\n", "line 1: the header must be sample,client, got 'client,sample'"),
        ("sample,client,label\n0,1,3\n", "line 1: the header must be sample,client, got 'sample,client,label'"),
        ("sample,client\n0,1\n1\n", "line 3: a row needs two whole numbers, sample,client, got '1'"),
        ("sample,client\n0,1\n1,0,0\n", "line 3: a row needs two whole numbers, sample,client, got '1,0,0'"),
        ("sample,client\n0,1\n-1,0\n", "line 3: a row needs two whole numbers, sample,client, got '-1,0'"),
        ("sample,client\n0,1.5\n", "line 2: a row needs two whole numbers, sample,client, got '0,1.5'"),
        ("sample,client\n0,\n", "line 2: a row needs two whole numbers, sample,client, got '0,'"),
        ("sample,client\n0,1\n1,anna\n", "line 3: a row needs two whole numbers, sample,client, got '1,anna'"),
        ("sample,client\n0,²\n", "line 2: a row needs two whole numbers, sample,client, got '0,²'"),
        (
            "sample,client\n" + "9" * 5000 + ",1\n",
            "line 2: a row needs two whole numbers, sample,client, got '9{40}...",
        ),
        ("sample,client\n0,1\n2,0\n1,0\n", "line 3: sample 2 is unknown; the data set has samples 0 to 1"),
        ("sample,client\n0,1\n1,2\n", "line 3: client 2 is out of range 0 to 1; set federation.n_clients"),
        ("sample,client\n0,1\n\n1,0\n0,0\n", "line 5: sample 0 has a client already, in line 2"),
        ("sample,client\n1,0\n", r"ends in line 2 without 1 of 2 samples \(first: 0\); every sample needs a client"),
        ("sample,client\n", r"ends in line 1 without 2 of 2 samples \(first: 0\)"),
        (b"sample,client\n0,1\n1,\xe9\n", "line 3: not UTF-8 text; save the file as CSV in UTF-8"),
        ("sample,client\n0,1\n".encode("utf-16"), "line 1: not UTF-8 text"),
        (b"\x00\x00\x01", r"line 1: the header must be sample,client, got '\\x00\\x00\\x01'"),
    ],
)
def test_a_bad_file_is_one_error_that_names_file_and_line(table, content, message):
    with pytest.raises(DataError, match=rf"clients\.csv,? {message}"):
        deal(table(content), 2, 2)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"from_file cannot read .*absent\.csv: No such file"):
        deal(FromFile(str(tmp_path / "absent.csv")), 2, 2)
    with pytest.raises(DataError, match=r"from_file cannot read .*: Is a directory"):
        deal(FromFile(str(tmp_path)), 2, 2)


def test_a_client_without_samples_is_refused(table):
    with pytest.raises(SettingError, match=r"every client needs a sample, got none for 1 of 3 clients \(first: 1\)"):
        deal(table("sample,client\n0,0\n1,2\n"), 2, 3)


def test_from_the_command_line(table):
    path = table("sample,client\n0,1\n1,0\n").path
    config = conf.compose("partition=from_file", f"partition.path={path}").partition
    assert [part.tolist() for part in deal(instantiate(config), 2, 2)] == [[1], [0]]
