"""Threads: as many as there are cores for this process, which wait without keeping others from working."""

import json
import os
import subprocess
import sys

import pytest
import torch
from threadpoolctl import threadpool_info

from lightning_fl.network import threads as _threads
from lightning_fl.network.threads import n_cores, n_threads, settle_threads, spin_briefly


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
