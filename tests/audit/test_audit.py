"""What kept rounds tell: inner products are enough for rules that go by them."""

import pytest
import torch

import lightning_fl as fl
from lightning_fl import Aggregator, DataError, SettingError, Updates
from lightning_fl.audit import kept
from lightning_fl.audit.audit import audited
from lightning_fl.audit.kept import Kept, keep_round, kept_rounds, rows_of
from lightning_fl.contract import world

LIAR = 4
X, Y = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).repeat(8, 1), torch.tensor([0, 1]).repeat(8)


def rounds(folder, keep, n=3):
    """Seven clients, of which one sends minus ten times the first's update, and at last NaN."""
    for t in range(n):
        rows = 1 + world.honest_updates(7, seed=t)
        rows[LIAR] = -10 * rows[0] if t < n - 1 else torch.nan
        keep_round(folder, t + 1, Updates(rows, ids=range(7)), keep)


RULES = {"krum": fl.aggregator.Krum(1), "geometric_median": fl.aggregator.GeometricMedian()}


def test_rows_with_the_same_inner_products_have_the_same_weights():
    rows = world.honest_updates(7).double()
    for rule in RULES.values():
        ours, theirs = (rule.aggregate(Updates(x), world.oracle()).weights for x in (rows_of(rows @ rows.T), rows))
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)


def test_inner_products_tell_what_the_updates_tell(tmp_path):
    for keep in ("gram", "updates"):
        rounds(tmp_path / keep, keep)
    gram, whole = (audited(kept_rounds(tmp_path / keep), RULES) for keep in ("gram", "updates"))
    assert str(gram) == str(whole)
    assert {client for client, apart in gram.apart.items() if apart >= 2} == {LIAR}
    assert gram.trust("krum", LIAR) == 0
    assert sum(gram.trust("krum", client) for client in range(7)) == pytest.approx(7)
    assert f"{LIAR} !" in str(gram)


def test_a_lie_moves_the_mean_most(tmp_path):
    """Of two clients at 0 and 2 beside one at 1: the mean of the others is known, and so is what -10 of it does."""
    keep_round(tmp_path, 1, Updates(torch.tensor([[0.0], [1.0], [2.0]]), ids=[5, 6, 7]), "gram")
    average = fl.aggregator.Average()
    found = audited(kept_rounds(tmp_path), {"average": average}).moved["average"]
    # Client 5 in place of 0: others 1 and 2, mean 1.5, spread 0.5; -15 moves the mean by 5, which is 10 spreads.
    assert found[5] == pytest.approx(10, rel=1e-6)


@pytest.mark.parametrize(("n", "f"), [(3, 1), (5, 2), (7, 2)])
def test_rows_of_nan_stand_out_however_many(tmp_path, n, f):
    rows = world.honest_updates(n)
    rows[n - f :] = torch.nan
    keep_round(tmp_path, 1, Updates(rows, ids=range(n)), "gram")
    found = audited(kept_rounds(tmp_path), {"krum": fl.aggregator.Krum(0)})
    assert [apart == float("inf") for apart in found.apart.values()] == [False] * (n - f) + [True] * f
    assert all(far < 1e6 for far in found.moved.get("krum", {}).values())


def test_a_rule_with_memory_is_asked_round_by_round(tmp_path):
    """FoolsGold: what two clients sent alike before counts, too, and each audit begins anew."""
    for t in range(4):
        rows = world.honest_updates(6, seed=t)
        rows[4] = rows[5]
        keep_round(tmp_path, t + 1, Updates(rows, ids=range(6)), "updates")
    rule, alone, weights = fl.aggregator.Foolsgold(), fl.aggregator.Foolsgold(), []
    for one in kept_rounds(tmp_path):
        weights.append(alone.aggregate(one.updates, world.oracle(index=one.number - 1)).trusted.tolist())
        alone.on_train_batch_end(None, None, None, None, one.number - 1)
    for _ in range(2):
        found = audited(kept_rounds(tmp_path), {"foolsgold": rule}).weights["foolsgold"]
        assert [[row[str(client)] for client in range(6)] for row in found] == weights
    keep_round(tmp_path, 5, Updates(rows, ids=range(6)), "gram")
    assert (
        "remembers updates, got inner products"
        in audited(kept_rounds(tmp_path), {"foolsgold": rule}).skipped["foolsgold"]
    )


def test_another_run_in_the_folder_leaves_no_rounds_of_the_first(tmp_path):
    rounds(tmp_path, "gram", 5)
    rounds(tmp_path, "gram", 2)
    assert [one.number for one in kept_rounds(tmp_path)] == [1, 2]


def test_a_rule_that_needs_more_is_left_out(tmp_path):
    rounds(tmp_path, "gram")
    rules: dict[str, Aggregator] = {"median": fl.aggregator.Median(), "fltrust": fl.aggregator.Fltrust()}
    found = audited(kept_rounds(tmp_path), rules)
    assert 'needs the updates, got inner products; run with keep="updates"' in found.skipped["median"]
    assert "needs the server" in found.skipped["fltrust"]
    rounds(tmp_path, "updates")
    found = audited(kept_rounds(tmp_path), {"median": fl.aggregator.Median()})
    assert found.skipped == {}
    assert set(found.moved["median"]) == set(range(7))


def test_a_simulated_run_keeps_its_rounds(tmp_path):
    rule = Kept(fl.aggregator.Krum(1), str(tmp_path))
    other = fl.aggregator.TrimmedMean(1)
    assert Kept(other, str(tmp_path)).kappa(7, 1, True) == other.kappa(7, 1, True) > 0
    for t in range(2):
        rule.aggregate(Updates(world.honest_updates(7, seed=9), ids=range(7)), world.oracle(index=t))
        rows = Updates(world.honest_updates(7, seed=t), ids=range(7))
        assert rule.aggregate(rows, world.oracle(index=t)).weights is not None
        rule.on_train_batch_end(None, None, None, None, t)
    kept = list(kept_rounds(tmp_path))
    assert [one.number for one in kept] == [1, 2]
    torch.testing.assert_close(kept[1].updates.gram, rows.gram)


def test_a_run_keeps_its_rounds_in_a_folder_of_its_own(tmp_path):
    def run(folder, **more):
        rule = Kept(fl.aggregator.Average(), str(tmp_path / folder))
        data = fl.TensorData((X, Y), (X, Y), fl.partition.Iid(), n_clients=4, server_samples=0)
        return fl.train(lambda: torch.nn.Linear(2, 2), data, rule, rounds=2, **more)

    run("a")
    before = [path.read_bytes() for path in sorted(tmp_path.glob("a/rounds/*"))]
    with pytest.raises(SettingError, match=r"a folder of its own, got .*a with rounds of an earlier one; give"):
        run("a", seed=1)
    assert [path.read_bytes() for path in sorted(tmp_path.glob("a/rounds/*"))] == before
    run("b", seed=1)
    with pytest.raises(SettingError, match="Kept keeps one run, got 2 seeds"):
        run("c", seed=[0, 1])


def test_nothing_kept(tmp_path):
    with pytest.raises(DataError, match=r"an audit needs kept rounds, got none in .*rounds"):
        next(kept_rounds(tmp_path))


def test_what_a_lie_moves_does_not_depend_on_how_often_a_client_takes_part(tmp_path):
    """Ten rounds of the same rows, of which the last is client 9's in the first round, and client 3's afterwards."""
    rows = world.honest_updates(4)
    for t in range(10):
        keep_round(tmp_path, t + 1, Updates(rows, ids=[0, 1, 2, 9 if t == 0 else 3]), "gram")
    found = audited(kept_rounds(tmp_path), {"average": fl.aggregator.Average()}).moved["average"]
    assert found[9] == pytest.approx(found[3], rel=1e-6)
    assert found[0] > 0


def test_of_several_processes_the_first_one_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "world", lambda: 2)
    for rank in (1, 0):
        monkeypatch.setattr(kept.dist, "get_rank", lambda rank=rank: rank)
        keep_round(tmp_path, 1, Updates(world.honest_updates(3)), "gram")
        assert len([*tmp_path.rglob("*.pt")]) == 1 - rank
