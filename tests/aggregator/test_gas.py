import numpy as np
import pytest
import torch

from lightning_fl import SettingError, Updates
from lightning_fl.aggregator import gas, krum_groups
from lightning_fl.aggregator.bulyan import Bulyan
from lightning_fl.aggregator.bygars import Bygars
from lightning_fl.aggregator.clipped_clustering import ClippedClustering
from lightning_fl.aggregator.flame import Flame
from lightning_fl.aggregator.gas import Gas, gas_weights
from lightning_fl.aggregator.geometric_median import GeometricMedian
from lightning_fl.aggregator.krum import Krum, MultiKrum
from lightning_fl.aggregator.median import Median
from lightning_fl.aggregator.monna import Monna
from lightning_fl.aggregator.nnm import Nnm
from lightning_fl.aggregator.trimmed_mean import TrimmedMean
from lightning_fl.contract import conf, world
from lightning_fl.errors import DivergedError
from tests.aggregator import reference
from tests.aggregator import reference_peers as peers

N, D, F = 11, 7, 2


GROUPS = [[3, 0], [5, 1, 6], [2, 4]]
LOOPS = {
    Krum(F): lambda rows: reference.krum(rows, F),
    MultiKrum(F): lambda rows: reference.multi_krum(rows, F),
    Bulyan(F): lambda rows: peers.bulyan(rows, F)[0],
    TrimmedMean(F): lambda rows: reference.trimmed_mean(rows, F),
    Median("mean"): reference.median,
}


def split(x, f, groups, rule):
    """Ask a rule of one matrix about each group."""

    def distances(blocks):
        return torch.stack([torch.linalg.vector_norm(rows - rule(rows), dim=1, dtype=torch.float64) for rows in blocks])

    rows = Updates(x)
    return rows.combine(gas_weights(rows, f, [torch.as_tensor(group) for group in groups], distances))


@pytest.mark.parametrize("groups", [GROUPS, [list(range(D))], [[k] for k in range(D)]])
@pytest.mark.parametrize("rule", LOOPS, ids=lambda rule: rule.spelled())
@pytest.mark.parametrize("name", ["random", "rank-deficient", "badly scaled", "offset"])
def test_agrees_with_the_loop(name, rule, groups):
    x = reference.problem(name, N, D)
    expected, _ = peers.gradient_splitting(x, F, groups, LOOPS[rule])
    found = split(torch.as_tensor(x), F, groups, rule)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9)


def test_literal():
    """Krum picks 1.2, 2.2 and -0.6 (of rows 4, 4 and 1); rows 5 and 6 are 10.5 away, the others at most 2.

    Krum's choice for all columns at once is row 0.
    """
    z = torch.tensor(reference.Z, dtype=torch.float64)
    groups = [[0], [1], [2]]
    result, found = peers.gradient_splitting(reference.Z, 2, groups, lambda rows: reference.krum(rows, 2))
    assert [answer.tolist() for answer in found["answers"]] == [[1.2], [2.2], [-0.6]]
    np.testing.assert_allclose(found["scores"], [0.8, 0.7, 1.7, 2.0, 1.4, 10.5, 10.5], atol=1e-12)
    assert found["kept"] == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(result, [1, 1.94, -0.94], atol=1e-12)
    torch.testing.assert_close(split(z, 2, groups, Krum(2)), torch.tensor([1.0, 1.94, -0.94]).double())


def test_literal_scores_add_up_distances_not_squares():
    """Against the median 0 of each column, one deviation of 3 beats two of 2: 3 < 4, 9 > 8; n - f = 4 rows stay."""
    x = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [3.0, 0.0], [2.0, 2.0]])
    assert split(x, 1, [[0], [1]], Median()).tolist() == [0.75, 0]
    assert split(x, 1, [[0, 1]], Median()).tolist() == [0.5, 0.5]  # 3 > sqrt(8)


@pytest.mark.parametrize(
    ("rule", "loop"),
    [
        (Krum(2), lambda rows: reference.krum(rows, 1)),
        (MultiKrum(2, None), lambda rows: reference.multi_krum(rows, 1)),
        (TrimmedMean(2), lambda rows: reference.trimmed_mean(rows, 1)),
        (Median("upper"), reference.median),
    ],
)
def test_non_finite_rows_count_among_the_f_in_every_group(rule, loop, draw):
    x = torch.randn(N, D, generator=draw, dtype=torch.float64)
    rest = np.delete(x.numpy(), 3, 0)
    x[3, 5] = torch.nan
    before = x.clone()
    expected, _ = peers.gradient_splitting(rest, 1, [[k] for k in range(D)], loop)
    found = split(x, 2, [[k] for k in range(D)], rule)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
    aggregation = Gas(rule, 2, 100).aggregate(Updates(x), world.oracle())
    np.testing.assert_allclose(aggregation.update.numpy(), expected, rtol=1e-12)
    assert aggregation.weights[3] == 0
    torch.testing.assert_close(x, before, equal_nan=True)


@pytest.mark.parametrize("n_groups", [1, 4, 9, 1000])
@pytest.mark.parametrize("n", [12, 115])
@pytest.mark.parametrize(
    "rule", [Krum(3), MultiKrum(3, None), Krum(3, "n-f-1"), MultiKrum(3, 2, "n-f-1"), TrimmedMean(3), Median("upper")]
)
def test_draws_groups_of_equal_size(rule, n, n_groups):
    x = world.honest_updates(n)
    aggregation = Gas(rule, 3, n_groups).aggregate(Updates(x), world.oracle())
    order = torch.randperm(world.D, generator=world.oracle().generator("gas"))
    groups = order.tensor_split(min(n_groups, world.D))
    assert {len(group) for group in groups} <= {world.D // len(groups), world.D // len(groups) + 1}
    expected = split(x, 3, groups, rule)
    torch.testing.assert_close(aggregation.update, expected)
    assert (aggregation.weights > 0).sum() == n - 3


@pytest.mark.parametrize("rule", [Krum(3), MultiKrum(3, None), MultiKrum(3, 4)])
def test_an_offset_that_all_rows_share_does_not_matter(rule):
    """Squared lengths of 1e18 keep no digit of squared distances around 1."""
    x = world.honest_updates(14).double()
    groups = torch.randperm(world.D, generator=world.oracle().generator("gas")).tensor_split(3)
    expected = Gas(rule, 3, 3).aggregate(Updates(x), world.oracle()).weights
    torch.testing.assert_close(expected @ x, split(x, 3, groups, rule))
    moved = (1024 * x).round() + 1e12
    assert torch.equal(Gas(rule, 3, 3).aggregate(Updates(moved), world.oracle()).weights, expected)


@pytest.mark.parametrize("bad", [False, True])
def test_how_many_groups_are_asked_about_at_a_time_does_not_matter(bad, draw, monkeypatch):
    x = torch.randn(13, 200, generator=draw)
    x[4, 7] = torch.nan if bad else 1e30
    results = []
    for entries, parts, threads in [(2**17, 4, 1), (1, 1, 1), (500, 3, 2), (1, 60, 2)]:
        monkeypatch.setattr(krum_groups, "_ENTRIES_CPU", entries)
        monkeypatch.setattr(gas, "_PARTS", parts)
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        results.append(Gas(Krum(3), 3, 60).aggregate(Updates(x), world.oracle()).weights)
        assert torch.equal(results[0], results[-1])
    assert results[0][4] == 0


def test_the_base_rule_has_its_own_bound_and_no_memory():
    rule = Gas(Krum(5), 3, 10)
    rule.check(12, 3)
    with pytest.raises(SettingError, match="krum needs"):
        rule.check(7, 3)
    assert (
        rule.guarantee(12, 3) == Krum(5).guarantee(12, 3) == "no guarantee: needs n >= 2f + 3, has 12 updates for f = 5"
    )
    assert rule.guarantee(13, 3) is None
    for remembers in [Bygars(3, 0.05, True), ClippedClustering("average", 1e5)]:
        with pytest.raises(SettingError, match=f"needs one without memory, got {type(remembers).__name__}"):
            Gas(Nnm(remembers, 3), 3, 10)
        with pytest.raises(SettingError, match=f"needs one without memory, got {type(remembers).__name__}"):
            Gas(remembers, 3, 10)
    x = world.honest_updates(N)
    assert Gas(GeometricMedian(1e-5), 3, 3).aggregate(Updates(x), world.oracle()).update.isfinite().all()


def test_the_base_rule_may_wrap_another():
    x = world.honest_updates(N)
    found = Gas(Nnm(TrimmedMean(2), 2), 2, 3).aggregate(Updates(x), world.oracle()).update
    order = torch.randperm(x.shape[1], generator=world.oracle().generator("gas")).tensor_split(3)
    expected = split(x, 2, order, Nnm(TrimmedMean(2), 2))
    torch.testing.assert_close(found, expected)


def test_the_base_rule_knows_the_clients_and_their_weights():
    x, weights = world.honest_updates(N), torch.tensor([100.0] + [1.0] * (N - 1))
    groups = torch.randperm(x.shape[1], generator=world.oracle().generator("gas")).tensor_split(3)
    found = Gas(GeometricMedian(1e-5), 2, 3).aggregate(Updates(x, weights), world.oracle()).update
    told = split(x, 2, groups, lambda rows: GeometricMedian(1e-5)(rows, weights=weights))
    torch.testing.assert_close(found, told)
    assert not torch.equal(found, Gas(GeometricMedian(1e-5), 2, 3).aggregate(Updates(x), world.oracle()).update)
    trusted = Gas(Monna(2, trusted=7), 2, 3).aggregate(Updates(x, ids=range(7, 7 + N)), world.oracle()).update
    torch.testing.assert_close(trusted, split(x, 2, groups, Monna(2, trusted=0)))


def test_a_rule_that_passes_on_nan_has_no_answer(draw):
    x = torch.randn(N, D, generator=draw)
    x[8, 0] = torch.nan
    with pytest.raises(DivergedError, match="gas needs a rule that leaves out updates with NaN or inf"):
        split(x, 2, GROUPS, lambda rows: rows.mean(0))


def test_a_rule_that_compares_whole_models_is_refused():
    for rule in [Flame(), Nnm(Flame(), 2)]:
        with pytest.raises(SettingError, match="compares whole updates with the server's model; use another"):
            Gas(rule, 2, 10)


def test_another_rule_is_chosen_by_name():
    rule = conf.compose("aggregator=gas", "aggregator@aggregator.rule=bulyan").aggregator.rule
    assert rule._target_ == "lightning_fl.aggregator.bulyan.Bulyan"
