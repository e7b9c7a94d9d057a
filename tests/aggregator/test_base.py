"""A rule called on a plain matrix."""

import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.boba import Boba
from lightning_fl.aggregator.bucketing import Bucketing
from lightning_fl.aggregator.bygars import Bygars
from lightning_fl.aggregator.fltrust import Fltrust
from lightning_fl.aggregator.krum import Krum
from lightning_fl.aggregator.monna import Monna
from lightning_fl.aggregator.rejection import SelfRejection
from lightning_fl.contract import world

X = torch.tensor([[0.0], [1.0], [2.0], [5.0], [54.0]])


def test_f_is_checked_against_n_first():
    with pytest.raises(SettingError, match=r"krum needs f >= 0 and n >= f \+ 3 updates.* n=5 and f=3; change f"):
        Krum(f=3)(X)


@pytest.mark.parametrize(
    ("rule", "server", "message"),
    [
        (Fltrust(), None, r"needs the server's update \(d,\) as its second argument, got none"),
        (Fltrust(), torch.ones(2, 1), r"needs the server's update \(d,\) as its second argument, got shape \(2, 1\)"),
        (SelfRejection(f=1), None, "needs losses on the server's data, got plain tensors; give it a ServerOracle"),
        (Bygars(), torch.ones(1), "needs gradients on the server's data, got plain tensors; give it a ServerOracle"),
    ],
)
def test_what_the_rule_asks_of_the_server_is_needed(rule, server, message):
    with pytest.raises(SettingError, match=message):
        rule(X, server)


def test_a_server_that_computes_is_asked():
    rows, oracle = world.honest_updates(), world.oracle()
    assert torch.equal(Boba(2)(rows, oracle), Boba(2)(rows, oracle.class_updates))
    assert SelfRejection(f=1)(rows, oracle).isfinite().all()


def test_rows_are_clients_by_number_unless_named():
    rule = Monna(f=1, trusted=4)
    assert torch.equal(rule(X), rule(X, ids=range(5)))
    assert rule(X, ids=[3, 4, 0, 1, 2]).item() != rule(X).item()


def test_the_seed_says_what_is_drawn():
    rows = torch.arange(12.0)[:, None] ** 2
    found = {seed: Bucketing(Krum(f=1), s=2)(rows, seed=seed).item() for seed in range(8)}
    assert len(set(found.values())) > 1
    assert found[3] == Bucketing(Krum(f=1), s=2)(rows, seed=3).item()


def test_data_weights_count():
    assert Average()(X[:2], weights=torch.tensor([3.0, 1.0])).item() == 0.25
