"""Rounds are timed on the CPU, which stands for any device."""

import pytest
import torch

from lightning_fl.device import speed
from lightning_fl.device.speed import engines, products, rounds_of, together

CPU = torch.device("cpu")
SMALL = ["model=logistic", "federation.n_clients=4", "federation.n_byzantine=1", "f=1"]


def test_rounds_are_timed_by_phase():
    begun = []
    found = rounds_of((1, 28, 28), 40, SMALL, "cpu", 0.05, lambda: begun.append(True))
    assert begun == [True]
    assert (found["clients"], found["d"]) == (5, 7850 - 10)
    assert found["rounds"] >= 1
    assert list(found["milliseconds"]) == ["clients", "attack", "aggregator", "robustness", "server"]
    each = 1e3 / found["rounds per second"]
    assert 0 < sum(found["milliseconds"].values()) < each
    assert found["waits"] == {}  # nobody waits for a CPU


def test_a_run_that_diverges_has_no_speed():
    with pytest.raises(ArithmeticError, match="not finite"):
        rounds_of((1, 28, 28), 40, [*SMALL, "adversary=non_finite"], "cpu", 60.0)


def test_each_engine_of_each_model(monkeypatch):
    monkeypatch.setattr(speed, "MODELS", {"logistic": (1, 28, 28), "mlp": (1, 28, 28)})
    monkeypatch.setattr(speed, "CHUNKS", (None, 1))
    found = list(engines(CPU, 0.01))
    assert [(r["model"], r["clients at a time"]) for r in found] == [
        ("logistic", "chosen"),
        ("logistic", 1),
        ("mlp", "chosen"),
        ("mlp", 1),
    ]
    assert all(record["ms"] > 0 for record in found)


def test_products_in_float32_have_larger_errors(monkeypatch):
    monkeypatch.setattr(speed, "SIZES", [(5, 20_000)])
    found = {record["product"]: record["error"] for record in products(CPU, turns=1)}
    assert found["float64"] == 0
    assert found["as rules ask"] < 1e-12 < found["float32, summed in float64"] < 1e-5
    assert 1e-12 < found["float32"] < 1e-5


@pytest.mark.slow
def test_runs_in_processes_of_their_own(monkeypatch):
    monkeypatch.setitem(speed.JOBS, "default", ((1, 28, 28), 40, SMALL))
    (found,) = together(CPU, 0.05, processes=[1])
    assert found["processes"] == 1
    assert found["rounds per second"] > 0


def test_each_job_is_timed_on_the_device_and_on_the_cpu(monkeypatch):
    monkeypatch.setattr(speed, "JOBS", {"small": ((1, 28, 28), 40, SMALL)})
    (found,) = speed.jobs(CPU, 0.05)
    assert (found["job"], found["on"]) == ("small", "cpu")
    assert found["rounds per second"] > 0
