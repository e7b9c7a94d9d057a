"""Threads: as many as there are cores for this process, which wait without keeping others from working."""

import json
import os
import subprocess
import sys
from threading import Barrier, get_ident

import pytest
import torch
from threadpoolctl import threadpool_info

from lightning_fl.network import threads as _threads
from lightning_fl.network.threads import (
    in_threads,
    n_cores,
    n_threads,
    one_thread,
    settle_threads,
    spin_briefly,
    threads_for,
)


def limited(root, lines, files):
    """A machine whose control groups say so."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("\n".join(lines))
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("lines", "files", "cores"),
    [
        (["0::/"], {"cpu.max": "max 100000"}, 64),
        (["0::/"], {"cpu.max": "200000 100000"}, 2),
        (["0::/a/b"], {"a/cpu.max": "350000 100000", "a/b/cpu.max": "max 100000"}, 4),
        (["0::/a/b"], {"a/cpu.max": "350000 100000", "a/b/cpu.max": "150000 100000"}, 2),
        (["0::/elsewhere"], {"cpu.max": "50000 100000"}, 1),
        (["4:cpu,x:/a"], {"cpu,x/a/cpu.cfs_quota_us": "300000", "cpu,x/a/cpu.cfs_period_us": "100000"}, 3),
        (["4:cpu:/a", "0::/"], {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 64),
        (["4:memory:/a"], {"memory/a/cpu.cfs_quota_us": "100000", "memory/a/cpu.cfs_period_us": "100000"}, 64),
        (["0::/"], {"cpu.max": "what is this"}, 64),
    ],
)  # fmt: skip
def test_cores_by_quota(lines, files, cores, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    assert n_cores(limited(tmp_path, lines, files)) == cores


def test_cores_by_affinity_and_without_any_word(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5}, raising=False)
    assert n_cores(limited(tmp_path, ["0::/"], {"cpu.max": "900000 100000"})) == 2
    assert n_cores(tmp_path / "nowhere") == 2


@pytest.fixture
def threads(monkeypatch):
    """Torch with eight threads, on three of ten cores."""
    told = [8]
    monkeypatch.setattr(torch, "get_num_threads", lambda: told[-1])
    monkeypatch.setattr(torch, "set_num_threads", told.append)
    monkeypatch.setattr(_threads, "n_cores", lambda: 3)
    monkeypatch.setattr(os, "cpu_count", lambda: 10)
    return told


def test_no_more_threads_than_cores(threads):
    chosen = settle_threads({})
    assert chosen == "Threads    3: this process may use 3 of 10 cores; OMP_NUM_THREADS sets another number"
    assert threads == [8, 3]
    assert settle_threads({}) is None
    threads.append(1)
    assert (settle_threads({}), n_threads({})) == (None, 1)


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_NUM_THREADS"])
def test_the_environment_has_the_last_word(name, threads):
    assert settle_threads({name: "8"}) is None
    assert n_threads({name: "8"}) == 8
    assert threads == [8]


def test_threads_spin_briefly_unless_somebody_has_said_how_they_wait(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    for given, turns in [({}, "1000"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None), ({"GOMP_SPINCOUNT": "9"}, "9")]:
        environment = dict(given)
        spin_briefly(environment)
        assert environment.get("GOMP_SPINCOUNT") == turns


def test_importing_the_package_comes_early_enough():
    code = (
        "import json, os, sys; before = 'torch' in sys.modules; import lightning_fl; torch = 'torch' in sys.modules; "
    )
    code += "print(json.dumps([before, torch, os.environ.get('GOMP_SPINCOUNT')]))"
    environment = {name: value for name, value in os.environ.items() if name not in _threads._WAITING}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert json.loads(done.stdout) == [False, False, "1000"]


@pytest.fixture
def two_threads():
    """Torch with two threads, whatever the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_work_is_shared_by_threads_that_use_one_each():
    together = Barrier(2)

    def work(item):
        together.wait(timeout=60)  # passed by two at once only
        return item, torch.get_num_threads()

    assert in_threads(work, range(6)) == [(i, 1) for i in range(6)]
    assert torch.get_num_threads() == 2
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda item: 1 // item, [1, 0, 1])
    assert torch.get_num_threads() == 2
    assert in_threads(lambda item: get_ident(), [None]) == [get_ident()]  # one item needs no other thread


@pytest.mark.usefixtures("two_threads")
def test_small_matrices_are_for_one_thread():
    for n, threads in [(512, 1), (513, 2)]:
        with threads_for(n):
            assert torch.get_num_threads() == threads
        assert torch.get_num_threads() == 2
    with pytest.raises(ZeroDivisionError), one_thread():
        raise ZeroDivisionError
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(
    ("vendor", "count", "chosen"),
    [("AuthenticAMD", 1, True), ("AuthenticAMD", 2, True), ("AuthenticAMD", 16, False), ("GenuineIntel", 1, False)],
)
def test_numpy_multiplies_where_it_is_faster(vendor, count, chosen, tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nvendor_id\t: {vendor}\n")
    intel = _threads._intel(tmp_path / "cpuinfo")
    monkeypatch.setattr(_threads, "_intel", lambda: intel)
    monkeypatch.setattr(torch, "get_num_threads", lambda: count)
    assert _threads.numpy_multiplies() == chosen


def test_a_system_without_a_list_of_processors_is_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(_threads.platform, "processor", lambda: "Intel64 Family 6")
    assert _threads._intel(tmp_path / "none")


def test_products_of_numpy_use_as_many_threads_as_torch():
    before = torch.get_num_threads()
    try:
        _threads.set_threads(1)
        assert torch.get_num_threads() == 1
        pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
        assert pools
        assert all(pool["num_threads"] == 1 for pool in pools)
    finally:
        _threads.set_threads(before)
