import numpy as np
import pytest
import torch

from lightning_fl import Updates
from lightning_fl.aggregator.aksel import Aksel
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.ctma import Ctma
from lightning_fl.aggregator.geometric_median import GeometricMedian
from lightning_fl.aggregator.krum import Krum
from lightning_fl.aggregator.median import Median
from lightning_fl.aggregator.nnm import Nnm
from lightning_fl.aggregator.server_mixture import ServerMixture
from lightning_fl.aggregator.trimmed_mean import TrimmedMean
from lightning_fl.contract import world
from lightning_fl.updates.deviation import squares_about
from lightning_fl.updates.mixed import mix
from tests.aggregator import reference
from tests.aggregator import reference_field as field

ANCHORS = {
    "median": (lambda f: Median("mean"), lambda x, f: reference.median(x, "mean")),
    "trimmed_mean": (TrimmedMean, reference.trimmed_mean),
    "geometric_median": (
        lambda f: GeometricMedian(1e-9),
        lambda x, f: reference.geometric_median(x, np.full(len(x), 1 / len(x))),
    ),
    "nnm_median": (
        lambda f: Nnm(Median("mean"), f),
        lambda x, f: reference.median(reference.nearest_neighbor_mixing(x, f), "mean"),
    ),
    "nnm_average": (lambda f: Nnm(Average(), f), lambda x, f: reference.nearest_neighbor_mixing(x, f).mean(0)),
}


@pytest.mark.parametrize("f", [1, 2, 3])
@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize(
    "x", [reference.X, field.U, reference.problem("random", 9, 5), reference.problem("offset", 9, 5)]
)
def test_agrees_with_the_loop(anchor, f, x):
    inner, loop = ANCHORS[anchor]
    kept = field.nearest(x, loop(x, f), f)
    found = Ctma(inner(f), f).aggregate(Updates(torch.as_tensor(x)), world.oracle())
    assert found.weights.nonzero().flatten().tolist() == kept
    np.testing.assert_allclose(found.update.numpy(), field.mean(x[kept]), rtol=1e-12)


def test_literal():
    """The median of U is (1, 1.1), and the rows at 4.8, 4 and 14 from it are the farthest; that of all six is no K."""
    u = torch.as_tensor(field.U)
    for f, kept in [(1, [0, 1, 2, 3, 4, 5]), (2, [0, 1, 2, 3, 4]), (3, [0, 1, 2, 3])]:
        expected = u[kept].mean(0)
        torch.testing.assert_close(Ctma(Median(), f)(u), expected)
    line = torch.tensor([[0.0], [2.0], [3.0], [4.0], [6.0]])
    assert Ctma(Median(), 1)(line).item() == 9 / 4  # of 0 and 6, equally near, the first counts


@pytest.mark.parametrize("f", [0, 2, 4])
def test_after_the_median_it_is_aksel(f, draw):
    x = torch.randn(9, 50, generator=draw)
    torch.testing.assert_close(Ctma(Median("mean"), f)(x), Aksel(f)(x))


def test_distances_from_inner_products_are_those_by_subtraction(draw):
    """Beside rows of 1e30 and NaN, far from the origin, of mixed rows and of what a server adds."""
    x = torch.randn(12, 40, generator=draw, dtype=torch.float64) + 1e4
    x[3], x[5, 2] = 1e30, torch.nan
    rows = Updates(x)
    for rule in (GeometricMedian(), Krum(3), Nnm(GeometricMedian(), 3), Nnm(Median(), 3)):
        answer = rule.aggregate(rows, world.oracle()).answer
        point = answer if isinstance(answer, torch.Tensor) else answer.vector
        near = [i for i in range(12) if i not in (3, 5)]
        found, by_hand = squares_about(rows, answer), (x - point).square().sum(1)
        torch.testing.assert_close(found[near], by_hand[near], rtol=1e-6, atol=1e-9)
        assert found[3] > 1e60
        assert not found[5].isfinite()
    mixed = mix(rows, torch.eye(12)[:3] / 2 + torch.eye(12)[6:9] / 2)
    point = mixed.combination(torch.tensor([0.5, 0.5, 0.0]))
    torch.testing.assert_close(squares_about(mixed, point)[:2], (mixed.rows - point.vector).square().sum(1)[:2])


def test_after_a_rule_that_asks_the_server(draw):
    x, classes = torch.randn(9, 4, generator=draw), torch.randn(3, 4, generator=draw)
    anchor = reference.server_mixture(x.double().numpy().mean(0), classes.double().numpy(), 0.25)
    kept = field.nearest(x.double().numpy(), anchor, 2)
    torch.testing.assert_close(Ctma(ServerMixture(Average()), 2)(x, classes), x[kept].mean(0))
