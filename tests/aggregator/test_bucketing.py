import numpy as np
import pytest
import torch

from lightning_fl import Aggregation, Aggregator, SettingError, Updates
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.boba import Boba
from lightning_fl.aggregator.bucketing import Bucketing, Resampling, bucket_matrix, draw_buckets, resample_buckets
from lightning_fl.aggregator.krum import Krum, MultiKrum
from lightning_fl.aggregator.normalized import Normalized
from lightning_fl.contract import conf, world
from lightning_fl.updates.mixed import mix
from tests.aggregator import reference

N, D = 11, 6


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def problem(name: str, dtype=torch.float64) -> torch.Tensor:
    return torch.as_tensor(reference.problem(name, N, D), dtype=dtype)


def means(buckets, x, weights=None):
    """What a rule gets to see of the rows."""
    rows = Updates(x, weights)
    return mix(rows, bucket_matrix(buckets, rows.data_weights)).rows


def bucketing(x, s, draw, leftover="drop", weights=None):
    return means(draw_buckets(len(x), s, draw, leftover), x, weights)


def resampling(x, s, draw, weights=None):
    return means(resample_buckets(len(x), s, draw), x, weights)


class Listener(Aggregator):
    """Take the first row; keep what it was given."""

    def aggregate(self, updates, server):
        self.updates = updates
        return Aggregation(updates.rows[0], None, {"rows": updates.n})

    def check(self, n, n_classes):
        self.checked = n, n_classes


@pytest.mark.parametrize("leftover", ["drop", "keep"])
@pytest.mark.parametrize("s", [1, 2, 3, N])
@pytest.mark.parametrize("name", reference.PROBLEMS)
def test_agrees_with_the_loop(name, s, leftover):
    x = problem(name)
    order = torch.randperm(N, generator=generator()).tolist()
    expected = reference.bucket_means(x.numpy(), order, s, leftover == "keep")
    np.testing.assert_allclose(bucketing(x, s, generator(), leftover).numpy(), expected, rtol=1e-12)


def test_literal_leftover():
    """Five equal clients by twos: the fifth is dropped, or a bucket of its own mean 8, not 8/s = 4."""
    x = torch.full((5, 1), 8.0)
    assert bucketing(x, 2, generator()).tolist() == [[8], [8]]
    assert bucketing(x, 2, generator(), "keep").tolist() == [[8], [8], [8]]


@pytest.mark.parametrize(("n", "buckets"), [(115, 57), (100, 50), (214, 107), (160, 80)])
def test_literal_counts_of_the_paper(n, buckets):
    """Spec section 2, B-Krum and B-MKrum with s = 2."""
    assert len(draw_buckets(n, 2, generator())) == buckets


def test_every_client_meets_every_other():
    """All 3 pairings of 4 clients come, about equally often; blocks of neighbours would give one."""
    seen = [tuple(sorted(tuple(sorted(b.tolist())) for b in draw_buckets(4, 2, generator(i)))) for i in range(300)]
    assert sorted(set(seen)) == [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))]
    assert min(seen.count(pairing) for pairing in set(seen)) > 70


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_non_finite_row_spoils_only_its_bucket(value):
    """Also in the Gram matrix."""
    rows, server, listener = problem("random"), world.oracle(), Listener()
    rows[4, 2] = value
    Bucketing(listener, 2, "keep").aggregate(Updates(rows), server)
    fine = [4 not in bucket for bucket in draw_buckets(N, 2, server.generator("bucketing"), "keep")]
    assert listener.updates.gram.diagonal().isfinite().tolist() == fine
    assert listener.updates.rows.isfinite().all(1).tolist() == fine
    block = listener.updates.gram[fine][:, fine]
    torch.testing.assert_close(block, listener.updates.rows[fine] @ listener.updates.rows[fine].T)


@pytest.mark.parametrize("leftover", ["drop", "keep"])
@pytest.mark.parametrize("rule", [Average(), Krum(0), MultiKrum(0, 2), Normalized(), Boba(0, -0.5, 20, "none", True)])
def test_weights_are_the_clients_share_of_their_bucket(rule, leftover):
    """The update is their combination (BOBA adds server rows: there the bucket's weights are compared)."""
    rows, server = world.honest_updates(N), world.oracle()
    bucketed = Bucketing(rule, 3, leftover)
    aggregation = bucketed.aggregate(Updates(rows), server)
    buckets = draw_buckets(N, 3, server.generator("bucketing"), leftover)
    dropped = set(range(N)) - {i for bucket in buckets for i in bucket.tolist()}
    assert len(dropped) == (2 if leftover == "drop" else 0)
    assert all(aggregation.weights[i] == 0 for i in dropped)
    sizes = torch.tensor([len(bucket) for bucket in buckets], dtype=torch.float64)
    means = torch.stack([rows[bucket].mean(0) for bucket in buckets])
    inner = rule.aggregate(Updates(means, sizes), server)
    torch.testing.assert_close(aggregation.update, inner.update)
    for bucket, weight in zip(buckets, inner.weights, strict=True):
        torch.testing.assert_close(aggregation.weights[bucket], (weight / len(bucket)).expand(len(bucket)))
    if isinstance(rule, Normalized):
        for bucket, trust in zip(buckets, inner.trust, strict=True):
            torch.testing.assert_close(aggregation.trust[bucket], (trust / len(bucket)).expand(len(bucket)))
    if not isinstance(rule, Boba):
        torch.testing.assert_close(aggregation.update, (aggregation.weights @ rows.double()).float())


def test_data_weights_add_up_and_diagnostics_come_through():
    weights, server, listener = torch.arange(1.0, N + 1), world.oracle(), Listener()
    aggregation = Bucketing(listener, 2, "drop").aggregate(Updates(problem("random"), weights), server)
    buckets = draw_buckets(N, 2, server.generator("bucketing"))
    expected = torch.tensor([weights[bucket].sum() for bucket in buckets], dtype=torch.float64)
    torch.testing.assert_close(listener.updates.data_weights, expected / expected.sum())
    assert aggregation.weights is None
    assert aggregation.diagnostics == {"rows": 5}


def test_literal_data_weights():
    """Equal inside the bucket, the mean of the bucket means would be 5; the average is 2, whoever meets whom."""
    x, weights = torch.tensor([[0.0], [10.0], [0.0], [10.0]]), torch.tensor([0.7, 0.1, 0.1, 0.1])
    aggregation = Bucketing(Average(), 2, "drop").aggregate(Updates(x, weights), world.oracle())
    assert aggregation.update.item() == pytest.approx(2)
    torch.testing.assert_close(aggregation.weights, weights.double())
    assert sorted(bucketing(x, 4, generator(), weights=weights).flatten().tolist()) == pytest.approx([2])


@pytest.mark.parametrize("leftover", ["drop", "keep"])
def test_weighted_buckets_agree_with_the_loop(leftover):
    x, weights = problem("random"), torch.arange(0.0, N)
    buckets = [bucket.tolist() for bucket in draw_buckets(N, 3, generator(), leftover)]
    expected = reference.weighted_bucket_means(x.numpy(), buckets, weights.tolist())
    np.testing.assert_allclose(bucketing(x, 3, generator(), leftover, weights).numpy(), expected, rtol=1e-12)


def test_a_bucket_without_data_is_averaged_equally():
    x, weights = torch.tensor([[0.0], [10.0], [4.0]]), torch.tensor([0.0, 0.0, 1.0])
    means = bucketing(x, 1, generator(), weights=weights).flatten().tolist()
    assert sorted(means) == [0, 4, 10]
    for seed in range(5):
        means = bucketing(x, 2, generator(seed), "drop", weights).flatten().tolist()
        assert means in ([5], [4])


@pytest.mark.parametrize("rule", [Krum(1), MultiKrum(1, None), Average()])
def test_a_weighting_builds_no_bucket_means(rule, monkeypatch):
    built = []
    monkeypatch.setattr("lightning_fl.updates.mixed._Mixed.rows", property(lambda self: built.append(1)))
    Bucketing(rule, 2, "drop").aggregate(Updates(problem("random")), world.oracle())
    assert not built


def test_resampling_uses_every_client_s_times():
    for seed in range(5):
        buckets = resample_buckets(N, 3, generator(seed))
        assert [len(bucket) for bucket in buckets] == [3] * N
        assert sorted(torch.cat(list(buckets)).tolist()) == sorted([*range(N)] * 3)
    assert len({tuple(bucket.tolist()) for i in range(50) for bucket in resample_buckets(2, 2, generator(i))}) == 4


def test_resampling_agrees_with_the_loop():
    x, weights, server = problem("random"), torch.arange(1.0, N + 1), world.oracle()
    buckets = [bucket.tolist() for bucket in resample_buckets(N, 2, generator())]
    for shares in (None, weights):
        expected = reference.weighted_bucket_means(
            x.numpy(), buckets, (torch.ones(N) if shares is None else shares).tolist()
        )
        np.testing.assert_allclose(resampling(x, 2, generator(), shares).numpy(), expected, rtol=1e-12)
    listener = Listener()
    for s in (2, 3):
        Resampling(listener, f=1, s=s).aggregate(Updates(x, weights), server)
        torch.testing.assert_close(listener.updates.rows, resampling(x, s, server.generator("resampling"), weights))
        assert listener.updates.data_weights.tolist() == pytest.approx([1 / N] * N)
    for seed in range(5):  # of two clients the order that is drawn is often the one in which they are
        server = world.oracle(index=seed)
        Resampling(listener, f=0, s=1).aggregate(Updates(x[:2], weights[[0, 3]]), server)
        assert listener.updates.data_weights.tolist() == [0.5, 0.5]
    Resampling(listener, f=1, s=2).check(9, 4)
    assert listener.checked == (9, 4)


def test_checks_the_rule_for_the_number_of_buckets():
    listener = Listener()
    Bucketing(listener, 2, "drop").check(115, 10)
    assert listener.checked == (57, 10)
    Bucketing(listener, 2, "keep").check(115, 10)
    assert listener.checked == (58, 10)
    with pytest.raises(SettingError, match=r"krum needs .* got n=5 and f=3.* 5 buckets: 11 clients, 2 in each"):
        Bucketing(Krum(3), 2, "drop").check(N, 3)


@pytest.mark.parametrize(("name", "kind"), [("krum", Krum), ("multi_krum", MultiKrum)])
def test_configuration(name, kind):
    rule = conf.make("aggregator", f"bucketing_{name}")
    assert isinstance(rule, Bucketing)
    assert isinstance(rule.rule, kind)
    assert (rule.s, rule.leftover, rule.rule.f) == (2, "drop", 16)
    assert conf.compose(f"aggregator=bucketing_{name}", "aggregator.rule.f=3").aggregator.rule.f == 3
