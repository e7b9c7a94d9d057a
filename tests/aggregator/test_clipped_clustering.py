import numpy as np
import pytest
import torch

from lightning_fl import Updates
from lightning_fl.aggregator.clipped_clustering import ClippedClustering
from lightning_fl.aggregator.clusters import cosine_distances
from lightning_fl.contract import world
from lightning_fl.updates.products import gram_matrix
from tests import training
from tests.aggregator import reference
from tests.aggregator import reference_peers as peers

N, D = 11, 6
LINKAGES = ["average", "single"]


def clipped_clustering(x, norms=(), linkage="average", max_radius=1e5):
    """The rule after rounds of updates of these norms."""
    rule = ClippedClustering(linkage, max_radius)
    rule.load_state_dict({"norms": torch.tensor(norms, dtype=torch.float64)})
    return rule(x)


@pytest.mark.parametrize("linkage", LINKAGES)
@pytest.mark.parametrize("n", [1, 2, 3, 10, 11])
@pytest.mark.parametrize("name", ["random", "badly scaled"])
def test_agrees_with_the_loop(name, n, linkage):
    """Where no two pairs have the same cosine."""
    x, norms = reference.problem(name, n, D), [0.3, 2.0, 0.1]
    for seen in [(), norms]:
        expected, _ = peers.clipped_clustering(x, seen, linkage)
        found = clipped_clustering(torch.as_tensor(x), seen, linkage)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9)


def test_literal():
    """tau is the norm of row 2; rows 5 and 6 point elsewhere, row 4 is clipped.

    Without clipping (1, 1.94, -0.94) follows, with the mean of the norms 3.21 as tau too.
    """
    z = torch.tensor(reference.Z, dtype=torch.float64)
    result, found = peers.clipped_clustering(reference.Z)
    assert found["kept"] == [0, 1, 2, 3, 4]
    assert found["tau"] == pytest.approx(7.85**0.5)
    np.testing.assert_allclose(result, [0.9697247, 1.8844952, -0.8895411], atol=1e-7)
    expected = (z[:4].sum(0) + z[4] * (7.85 / 10.28) ** 0.5) / 5
    for linkage in LINKAGES:
        torch.testing.assert_close(clipped_clustering(z, linkage=linkage), expected)


def test_literal_linkage():
    """At 0, 40, 81, 123 and 170 degrees the nearest join one after the other, or in twos and then 170 with the last."""
    angles = torch.tensor([0.0, 40.0, 81.0, 123.0, 170.0], dtype=torch.float64).deg2rad()
    x = torch.stack([angles.cos(), angles.sin()], dim=1)
    torch.testing.assert_close(clipped_clustering(x, linkage="single"), x[:4].mean(0))
    torch.testing.assert_close(clipped_clustering(x), x[2:].mean(0))
    for linkage, expected in [("single", x[:4].mean(0)), ("average", x[2:].mean(0))]:
        rule = ClippedClustering(linkage, max_radius=0.5)
        torch.testing.assert_close(rule.aggregate(Updates(x), world.oracle()).update, 0.5 * expected)


def test_the_median_is_that_of_all_norms_so_far():
    """Norms 1, 2, 9, 4 of this round have the median 3; with 2.5 it is 2.5, with 2.5 and 3.5 it is 3."""
    x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [9.0, 0.0], [0.0, -4.0]])
    for norms, tau in [([], 3.0), ([2.5], 2.5), ([2.5, 3.5], 3.0), ([3.5], 3.5)]:
        assert clipped_clustering(x, norms).tolist() == pytest.approx([(1 + 2 + tau) / 3, 0])
    assert clipped_clustering(x, max_radius=0.5).tolist() == [0.5, 0]


def test_equal_clusters_and_few_rows():
    """Of two pairs, that of the first row; two rows are one cluster, however far."""
    x = torch.tensor([[0.0, -1.0], [2.0, 0.0], [1.0, 0.0], [0.0, -2.0]])
    assert clipped_clustering(x, [50.0] * 9).tolist() == [0, -1.5]
    assert clipped_clustering(x[:2], [50.0] * 9).tolist() == [1, -0.5]


def test_a_zero_row_is_far_from_every_direction():
    """At distance 1: nearer than what points elsewhere, farther than neighbours."""
    x = torch.tensor([[1.0, 0.1], [1.0, 0.0], [0.0, 0.0], [-1.0, 0.1]])
    assert cosine_distances(gram_matrix(x))[2].tolist() == [1, 1, 0, 1]
    torch.testing.assert_close(clipped_clustering(x, [9.0] * 9), x[:3].mean(0))
    assert clipped_clustering(torch.zeros(4, 2)).tolist() == [0, 0]


def test_norms_of_broken_rows_are_not_remembered(draw):
    x, rule = torch.randn(N, D, generator=draw), ClippedClustering("average", 1e5)
    x[3, 1], x[5] = torch.nan, torch.inf
    rule.aggregate(Updates(x), world.oracle())
    rule.on_train_batch_end(None, None, None, None, 0)
    assert len(rule.state_dict()["norms"]) == N - 2


def test_rounds_remember_norms_and_trials_do_not(draw):
    rule, seen = ClippedClustering("average", 1e5), []
    for round_ in range(3):
        x = (round_ + 1) * torch.randn(5, D, generator=draw)
        rule.aggregate(Updates(-100 * x), world.oracle())  # an attacker's trial leaves no trace
        aggregation = rule.aggregate(Updates(x), world.oracle())
        expected, found = peers.clipped_clustering(x.double().numpy(), seen)
        np.testing.assert_allclose(aggregation.update, expected, rtol=1e-5)
        assert aggregation.diagnostics["radius"] == pytest.approx(found["tau"], rel=1e-6)
        np.testing.assert_allclose(aggregation.trust, [i in found["kept"] and 1 / len(found["kept"]) for i in range(5)])
        torch.testing.assert_close(aggregation.weights.float() @ x, aggregation.update)
        rule.on_train_batch_end(None, None, None, None, round_)
        seen += [peers.length(row) for row in x.double().numpy()]


def test_a_run_remembers_every_norm_once():
    rule = ClippedClustering("average", 1e5)
    training.fit(training.trainer([rule], rounds=3))
    assert len(rule.state_dict()["norms"]) == 3 * 4
