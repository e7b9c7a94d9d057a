"""The comparison is tried on the CPU beside itself, where parts are made to differ."""

import pytest
import torch

from lightning_fl import Aggregation, Aggregator
from lightning_fl.aggregator.average import Average
from lightning_fl.contract import conf
from lightning_fl.device import agreement
from lightning_fl.device.agreement import CPU, Situation, differences, gap, resumed
from lightning_fl.run.config import OWN


class Forgetful(Aggregator):
    """Its answers, of the rounds of all of its kind, are further from the mean each time."""

    asked = 0

    def aggregate(self, updates, server):
        Forgetful.asked += 1
        return Aggregation(updates.rows.mean(0) + Forgetful.asked)


class Broken(Aggregator):
    def aggregate(self, updates, server):
        raise RuntimeError("not on this device")


@pytest.fixture
def parts(monkeypatch):
    """Three rules, no attack and one client, in float32."""
    rules = {"average": Average, "forgetful": Forgetful, "broken": Broken}
    make = conf.make
    monkeypatch.setattr(
        agreement, "choices", lambda kind: {"aggregator": list(rules), "client": ["gradient"]}.get(kind, [])
    )
    own = lambda kind, name, **settings: rules[name]() if name in rules else make(kind, name, **settings)  # noqa: E731
    monkeypatch.setattr(conf, "make", own)
    monkeypatch.setattr(agreement, "TOLERANCE", {torch.float32: 1e-3})
    monkeypatch.setattr(Forgetful, "asked", 0)


def test_a_users_own_rules_are_compared_beside_ours(tmp_path, monkeypatch):
    (tmp_path / "conf" / "aggregator").mkdir(parents=True)
    (tmp_path / "conf" / "aggregator" / "mine.yaml").write_text("_target_: lightning_fl.aggregator.average.Average\n")
    monkeypatch.setenv(OWN, str(tmp_path / "conf"))
    monkeypatch.setattr(agreement, "_asked", lambda *_: [])
    found = {(record["kind"], record["name"]) for record in differences(CPU)}
    assert {("aggregator", "mine"), ("aggregator", "krum"), ("adversary", "ipm"), ("client", "gradient")} <= found


def test_what_differs_is_told_by_the_honest_spread(parts):
    found = {record["name"]: record for record in differences(CPU)}
    assert list(found) == ["average", "forgetful", "broken", "gradient"]
    assert found["average"]["difference"] == 0
    assert found["average"]["agrees"]
    assert found["gradient"]["agrees"]
    honest = Situation(CPU, torch.float32).honest
    spread = (honest - honest.mean(0)).norm(dim=1).square().mean().sqrt()
    # Asked three times here and three times there, so every answer is off by 3 in each of the d coordinates.
    expected = 3 * honest.shape[1] ** 0.5 / spread
    assert found["forgetful"]["difference"] == pytest.approx(float(expected), rel=1e-4)
    assert not found["forgetful"]["agrees"]
    assert found["broken"] == {
        "kind": "aggregator",
        "name": "broken",
        "type": "float32",
        "difference": None,
        "error": "RuntimeError: not on this device",
        "agrees": False,
    }


def test_a_gap_is_that_of_the_farthest_rows_and_broken_numbers_must_agree():
    a = torch.tensor([[0.0, 0.0], [1.0, torch.inf]])
    assert gap(a, a) == 0
    assert gap(a, a + torch.tensor([[3.0, 4.0], [1.0, 0.0]])) == 5
    assert gap(a, a.nan_to_num(posinf=1.0)) == float("inf")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attacks_and_clients_send_a_row_each(dtype, tmp_path):
    place = Situation(CPU, dtype)
    torch.save(torch.rand(8, 1, 12, 12), tmp_path / "rare.pt")
    d = place.honest.shape[1]
    for sent in place.of_attack("edge_case", tmp_path / "rare.pt"):
        assert (sent.shape, sent.dtype) == ((5, d), dtype)
    for sent in place.of_client("momentum"):
        assert (sent.shape, sent.dtype) == ((20, d), dtype)
    assert not place.of_attack("none", tmp_path)


def test_runs_that_change_over_end_where_whole_ones_do(monkeypatch):
    own = ["model=logistic", "federation.n_clients=8", "federation.n_byzantine=1", "f=1", "aggregator=median"]
    monkeypatch.setattr(agreement, "RESUMED", {"small": own})
    found = list(resumed(CPU, rounds=4))
    assert len(found) == 3
    assert all(record["difference"] == 0 for record in found)
    assert all(record["accuracy"] == record["accuracy on cpu"] for record in found)
