import numpy as np
import pytest
import torch

from lightning_fl import SettingError, Updates
from lightning_fl.aggregator.arc import Arc
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.bygars import Bygars
from lightning_fl.aggregator.clipping import Clipping
from lightning_fl.aggregator.geometric_median import GeometricMedian
from lightning_fl.aggregator.krum import Krum
from lightning_fl.aggregator.median import Median
from lightning_fl.aggregator.mixing import clipping_scales
from lightning_fl.aggregator.nnm import Nnm, nnm_matrix
from lightning_fl.aggregator.normalized import Normalized
from lightning_fl.aggregator.server_mixture import ServerMixture
from lightning_fl.aggregator.trimmed_mean import TrimmedMean
from lightning_fl.contract import conf, world
from lightning_fl.updates.mixed import mix
from lightning_fl.updates.products import float64_columns, gram_matrix
from tests.aggregator import reference

N, D = 11, 6
U = [[0.0, 0.0], [1.0, 0.5], [0.2, 2.0], [4.0, 1.3], [1.1, 5.0], [-3.0, 1.1], [10.0, -9.0]]


def mixed(x, f):
    """What the wrapped rule sees."""
    rows = Updates(x)
    return mix(rows, nnm_matrix(rows.centred.gram, f)).rows


def test_literal():
    """E1.  With n - f others beside itself the first row would be (0.55, 1.65), without itself (0.66, 1.98)."""
    x = torch.tensor(U, dtype=torch.float64)
    sets = [[0, 1, 2, 3, 5], [0, 1, 2, 3, 5], [0, 1, 2, 4, 5], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0, 1, 2, 4, 5]]
    assert [sorted(near) for near in reference.nearest_neighbours(x.numpy(), 2)] == [*sets, [0, 1, 2, 3, 6]]
    expected = [[0.44, 0.98], [0.44, 0.98], [-0.14, 1.72], [1.26, 1.76], [1.26, 1.76], [-0.14, 1.72], [3.04, -1.04]]
    torch.testing.assert_close(mixed(x, 2), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Average(), [0.88, 1.1257142857]),
        (TrimmedMean(2), [0.7133333333, 1.4733333333]),
        (GeometricMedian(1e-7), [0.5227398420, 1.1777432119]),
        (Median("mean"), [0.44, 1.72]),
        (Krum(1), [0.44, 0.98]),  # told 1, it counts n - f - 1 others for f = 2
    ],
)
def test_literal_rules(rule, expected):
    """E1."""
    aggregation = Nnm(rule, 2).aggregate(Updates(torch.tensor(U, dtype=torch.float64)), world.oracle())
    np.testing.assert_allclose(aggregation.update.numpy(), expected, atol=1e-6)


def test_a_row_is_its_own_neighbour_and_of_equals_the_first_counts():
    x = torch.tensor([[1.0], [1.0], [1.0], [0.0], [2.0]], dtype=torch.float64)
    matrix = nnm_matrix(gram_matrix(x), f=3)
    assert (matrix != 0).int().tolist() == [
        [1, 1, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 0, 1, 0, 0],
        [1, 0, 0, 1, 0],
        [1, 0, 0, 0, 1],
    ]


def test_clipped_rows_equally_far_from_zero_share_the_places(draw):
    """In whatever order the columns are summed: clipping gives rows the same length up to rounding."""
    x = torch.randn(12, 500, generator=draw)
    x[0], x[1:3] = 0, x[1:3] / 1e3
    for _ in range(5):
        rows = Updates(x[:, torch.randperm(500, generator=draw)])
        matrix = nnm_matrix(mix(rows, clipping_scales(rows.squares.sqrt(), 1.0).diag()).centred.gram, 3)
        np.testing.assert_allclose(matrix[0] * 9, [1] * 3 + [6 / 9] * 9, rtol=1e-12)
        np.testing.assert_allclose(matrix.sum(1), [1] * 12, rtol=1e-12)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6, 1e7])
def test_neighbours_at_any_offset(offset, draw):
    """Beside seven rows of 1e30 and one NaN."""
    x = (torch.randn(25, 200, generator=draw, dtype=torch.float64) * 2**20).round() / 2**20
    shift = (offset * torch.randn(200, generator=draw, dtype=torch.float64)).round()
    there = x + shift
    for rows in (x, there):
        rows[3:10] = 1e30
        rows[12, 5] = torch.nan
    assert torch.equal(nnm_matrix(Updates(there).centred.gram, 8), nnm_matrix(Updates(x).centred.gram, 8))
    fine = [i for i in range(25) if not 3 <= i < 10 and i != 12]
    expected = reference.nearest_neighbours(x[[i for i in range(25) if i != 12]].numpy(), 7)
    found = nnm_matrix(Updates(there).centred.gram, 8)[:, [i for i in range(25) if i != 12]]
    for i in fine:
        assert found[i].nonzero().flatten().tolist() == sorted(expected[i - (i > 12)])
    for rule in (GeometricMedian(1e-9), Krum(7), Average()):
        honest, far = (Nnm(rule, 8).aggregate(Updates(rows), world.oracle()) for rows in (x, there))
        torch.testing.assert_close(far.weights, honest.weights, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rule", [Average(), GeometricMedian(1e-6)])
def test_data_weights_play_no_part(rule):
    rows = world.honest_updates()
    found = Nnm(rule, 3).aggregate(Updates(rows, torch.arange(1.0, 13.0)), world.oracle())
    torch.testing.assert_close(found.update, Nnm(rule, 3).aggregate(Updates(rows), world.oracle()).update)


@pytest.mark.parametrize("rule", [Average(), Krum(3), GeometricMedian(1e-6), Normalized()])
def test_a_weighting_never_builds_the_mixed_rows(rule, monkeypatch):
    """Its weights are those of the updates as sent, and the update is their combination."""
    updates = world.updates()
    with monkeypatch.context() as patch:
        for name in () if isinstance(rule, Normalized) else ("rows", "here"):  # which measures the rows themselves
            patch.setattr(f"lightning_fl.updates.mixed._Mixed.{name}", property(lambda _: pytest.fail("built")))
        aggregation = Nnm(rule, 3).aggregate(updates, world.oracle())
    torch.testing.assert_close(aggregation.weights.float() @ updates.rows, aggregation.update)
    explicit = rule.aggregate(Updates(mixed(updates.rows, 3)), world.oracle())
    torch.testing.assert_close(aggregation.update, explicit.update, rtol=1e-4, atol=1e-5)
    if not isinstance(rule, Normalized):
        torch.testing.assert_close(aggregation.trust, aggregation.weights)


def test_reads_d_once_however_often_it_is_asked(monkeypatch):
    passes = []
    for module in ("products", "updates"):
        name = f"lightning_fl.updates.{module}.float64_columns"
        monkeypatch.setattr(name, lambda *blocks: passes.append(1) or float64_columns(*blocks))
    basis = Updates(world.honest_updates())
    for factor in (1.0, 2.0, 3.0):  # as an adaptive attack asks: the same rows, another forged one
        matrix = torch.eye(12, dtype=torch.float64)
        matrix[-1] *= factor
        Nnm(Krum(3), 3).aggregate(mix(basis, matrix), world.oracle())
    assert len(passes) == 1


def test_a_rule_that_needs_to_know_the_clients_is_refused_before_training():
    remembers = Bygars(3, 0.05, carry_over=True)
    for hidden in (remembers, Arc(remembers, 1), ServerMixture(remembers, 0.5)):
        for wrapper in (Nnm(hidden, 1), Clipping(Nnm(hidden, 1), 1.0, 0.0)):
            with pytest.raises(
                SettingError, match="needs to know who sent which update, got mixtures of several clients from Nnm; use"
            ):
                wrapper.check(N, 3)
    Arc(Clipping(remembers, 1.0, 0.0), 1).check(N, 3)
    Nnm(Bygars(3, 0.05, carry_over=False), 1).check(N, 3)


def test_conf_nests_rules_in_any_order():
    short, long = (
        conf.compose(*words).aggregator
        for words in (
            ["aggregator=arc_nnm_krum"],
            ["aggregator=arc", "aggregator@aggregator.rule=nnm", "aggregator@aggregator.rule.rule=krum"],
        )
    )
    assert short == long
    rule = conf.make("aggregator", "arc_nnm_trimmed_mean", f=2)
    assert (type(rule), type(rule.rule), type(rule.rule.rule)) == (Arc, Nnm, TrimmedMean)
    assert rule.f == rule.rule.f == rule.rule.rule.f == 2
    x = torch.as_tensor(reference.problem("random", N, D))
    expected = reference.trimmed_mean(
        reference.nearest_neighbor_mixing(reference.adaptive_clipping(x.numpy(), 2), 2), 2
    )
    np.testing.assert_allclose(rule.aggregate(Updates(x), world.oracle()).update.numpy(), expected, rtol=1e-9)
