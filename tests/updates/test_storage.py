"""Updates in a file instead of memory: the same numbers, nothing left behind, and a full disk that says so."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from lightning_fl import DataError, SettingError
from lightning_fl.contract import conf
from lightning_fl.run.fit import fit_in_memory
from lightning_fl.updates.storage import Storage
from tests.test_files import room

SMALL = ["data=synthetic", "federation.n_clients=12", "federation.n_byzantine=2", "f=2", "data.n_train=200"]
SMALL += ["model.hidden=[20]", "trainer.max_steps=3", "trainer.val_check_interval=3", "trainer.accelerator=cpu"]
SMALL += ["run_dir=unused", "run_name=test", "logger=none"]
LIKE = torch.zeros(1)


def mapped(folder):
    """Regions of this process's memory that lie in the folder's files."""
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if f"{folder}/" in line]


def test_memory_is_the_default():
    storage = Storage()
    storage.check(10**18, torch.float32, torch.device("cpu"))
    assert storage.matrix(2, 3, LIKE.double()).dtype == torch.float64


def test_memory_is_used_again_once_nobody_refers_to_it():
    storage = Storage()
    rows = storage.matrix(4, 100, LIKE)
    place, view = rows.data_ptr(), rows[1:, :3]
    assert place % 64 == 0
    del rows
    view.fill_(7)
    others = [storage.matrix(4, 100, LIKE).zero_(), storage.matrix(3, 100, LIKE).zero_()]
    assert place not in [other.data_ptr() for other in others]
    assert view.eq(7).all()
    del view, others
    again = [storage.matrix(4, 100, LIKE), storage.matrix(3, 100, LIKE.double())]
    assert place in [rows.data_ptr() for rows in again]
    assert [(rows.shape, rows.dtype) for rows in again] == [((4, 100), torch.float32), ((3, 100), torch.float64)]
    assert len({rows.data_ptr() for rows in again}) == 2


def test_memory_is_kept_for_as_many_matrices_as_there_were_at_a_time():
    storage = Storage()
    for n in range(1, 50):
        rows = storage.matrix(n, 100, LIKE)
        own = storage.matrix(n // 2, 100, LIKE)
        del rows, own
    assert len(storage._kept) == 2
    storage.release()
    assert storage._kept == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_matrix_in_a_file_without_a_name(tmp_path, dtype):
    storage = Storage(tmp_path)
    rows = storage.matrix(3, 1000, LIKE.to(dtype))
    assert (rows.shape, rows.dtype, rows.is_contiguous()) == ((3, 1000), dtype, True)
    rows.copy_(torch.arange(3000).view(3, 1000))
    assert os.listdir(tmp_path) == []
    other = storage.matrix(3, 1000, LIKE.to(dtype)).zero_()
    assert (rows.sum(), other.sum()) == (2999 * 1500, 0)
    assert len(mapped(tmp_path)) == 2
    del rows, other
    assert mapped(tmp_path) == []


def test_no_rows(tmp_path):
    assert Storage(tmp_path).matrix(0, 5, LIKE).shape == (0, 5)


@pytest.mark.parametrize(
    "choices",
    [
        ["aggregator=boba", "adversary=lie"],
        ["aggregator=trimmed_mean", "adversary=non_finite", "adversary.kind=one_coordinate"],
        ["method=raga", "adversary=gaussian_updates"],
        ["aggregator=foolsgold", "adversary=mimic_learned", "client=momentum"],
    ],
)
def test_a_run_has_the_same_bytes(tmp_path, choices):
    found = []
    for updates_dir in ("null", tmp_path):
        summary, rows = fit_in_memory(conf.compose(*SMALL, *choices, f"updates_dir={updates_dir}"))
        assert summary["status"] == "completed"
        found.append([{key: value for key, value in row.items() if "seconds" not in key} for row in rows])
        found[-1].append(summary["recall"])
    assert found[0] == found[1]
    assert mapped(tmp_path) == os.listdir(tmp_path) == []


def test_a_round_leaves_nothing_to_the_next(tmp_path, monkeypatch):
    """The disk needs room for one round."""
    made, matrix = [], Storage.matrix

    def counted(*arguments):
        made.append(len(mapped(tmp_path)))
        return matrix(*arguments)

    monkeypatch.setattr(Storage, "matrix", counted)
    fit_in_memory(conf.compose(*SMALL, f"updates_dir={tmp_path}"))
    assert made == [0, 0, 0]


def test_no_folder(tmp_path):
    for folder in (tmp_path / "none", __file__):
        with pytest.raises(SettingError, match=f"needs a folder that can be written, got {folder}; create it"):
            Storage(folder).check(1, torch.float32, torch.device("cpu"))


def test_a_gpu_computes_in_its_own_memory(tmp_path):
    with pytest.raises(SettingError, match=r"computed on by a CPU, got cuda; set trainer.accelerator=cpu"):
        Storage(tmp_path).check(1, torch.float32, torch.device("cuda"))


def test_a_full_disk_is_found_before_any_training(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=560_000))
    # n d = 14 (784 * 20 + 20 + 20 * 10 + 10) numbers of 4 bytes
    with pytest.raises(SettingError) as error:
        fit_in_memory(conf.compose(*SMALL, f"updates_dir={tmp_path}"))
    assert str(error.value) == (
        f"the updates of a round need 0.000891 GB in updates_dir, got 0.00056 GB free in {tmp_path}; make room, choose "
        f"another folder, or lower federation.n_clients."
    )


def test_a_disk_that_fills_up_later(tmp_path):
    with room(1000), pytest.raises(DataError) as error:
        Storage(tmp_path).matrix(10, 100, LIKE)
    assert str(error.value) == (
        f"the updates of a round need 4e-06 GB in updates_dir, which {tmp_path} has no longer: File too large; make "
        f"room, then resume the run from its last checkpoint."
    )
    assert os.listdir(tmp_path) == []


def test_a_kill_leaves_nothing(tmp_path):
    code = "import os, signal, torch; from lightning_fl.updates.storage import Storage; import sys;"
    code += "rows = Storage(sys.argv[1]).matrix(5, 100, torch.zeros(1)).fill_(1); os.kill(os.getpid(), signal.SIGKILL)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=100)
    assert done.returncode == -signal.SIGKILL
    assert os.listdir(tmp_path) == []
