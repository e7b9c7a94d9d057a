"""Which engine trains many runs."""

import pytest

from lightning_fl.study import engine, pool, ray_pool


@pytest.mark.parametrize(("on", "address"), [("ray", None), ("ray://head:10001", "ray://head:10001")])
def test_ray_is_asked_at_its_address(monkeypatch, on, address):
    monkeypatch.setattr(ray_pool, "execute", lambda runs, workers, address: (runs, workers, address))
    monkeypatch.setattr(ray_pool, "each", lambda *given, address: (*given, address))
    assert engine.executor(3, on)(["a run"]) == (["a run"], 3, address)
    assert engine.each(on)(len, [("ab",)], 3) == (len, [("ab",)], 3, address)


def test_otherwise_processes_of_this_machine(monkeypatch):
    monkeypatch.setattr(pool, "execute", lambda runs, workers: (runs, workers))
    assert engine.executor(3)(["a run"]) == (["a run"], 3)
    assert sorted(engine.each()(len, [("ab",), ("abc",), ("",)], 2)) == [0, 2, 3]
