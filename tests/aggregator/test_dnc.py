import numpy as np
import pytest
import torch

from lightning_fl import Updates
from lightning_fl.aggregator.dnc import Dnc, divide_and_conquer_weights, dnc_scores
from lightning_fl.contract import world
from lightning_fl.updates.products import gram_matrix
from tests.aggregator import reference
from tests.aggregator import reference_peers as peers

N, D = 11, 6
SETS = [[0, 1, 3], [5, 2], [4, 0, 2, 1, 3]]


def divide_and_conquer(x, f, coordinates, c=1.0):
    """The rule where it draws these."""
    rows = Updates(x)
    return rows.combine(divide_and_conquer_weights(rows, f, coordinates, c))


def indices(sets):
    return [torch.tensor(columns) for columns in sets]


@pytest.mark.parametrize("c", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("sets", [SETS, SETS[:1], [list(range(D))]])
@pytest.mark.parametrize("name", ["random", "rank-deficient", "badly scaled", "offset"])
def test_agrees_with_the_loop(name, sets, c):
    """Where the SVD has one v ("tied" rows are two points, with equal scores within)."""
    x = reference.problem(name, N, D)
    expected, *_ = peers.dnc(x, 3, sets, c)
    result = divide_and_conquer(torch.as_tensor(x), 3, indices(sets), c)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-9)


def test_literal():
    """Scores of the three iterations by an SVD; rows 5 and 6 are worst in each, so the first five are averaged.

    With c = 1.5 the third to go is row 1, then 4, then 4 again, and 0, 2, 3 remain; on all coordinates it is 4.
    """
    z = torch.tensor(reference.Z, dtype=torch.float64)
    sets = [[0, 1], [1, 2], [0, 2]]
    _, scores, _ = peers.dnc(reference.Z, 2, sets)
    np.testing.assert_allclose(scores[0], [1.47872, 2.63433, 0.66041, 0.7392, 2.16225, 9.33055, 8.56954], atol=1e-5)
    for columns, expected in zip(sets, scores, strict=True):
        found = dnc_scores(gram_matrix(z[:, columns]))
        rise = (found - found[0]) / (found[5] - found[0])  # scores are free in scale and offset
        np.testing.assert_allclose(rise, (np.array(expected) - expected[0]) / (expected[5] - expected[0]), atol=1e-9)
    mean = torch.tensor([1.0, 1.94, -0.94]).double()
    torch.testing.assert_close(divide_and_conquer(z, 2, indices(sets)), mean)
    torch.testing.assert_close(divide_and_conquer(z, 2, indices([[0, 1, 2]])), mean)
    torch.testing.assert_close(
        divide_and_conquer(z, 2, indices(sets), 1.5), torch.tensor([2.3, 5.7, -2.1]).double() / 3
    )
    torch.testing.assert_close(
        divide_and_conquer(z, 2, indices([[0, 1, 2]]), 1.5), torch.tensor([3.8, 7.5, -2.7]).double() / 4
    )


def test_a_score_is_taken_about_the_mean():
    """About 0 the rows 5 and 6 would stand out of 5, 6, 0.5, 5, 5.5; about their mean 4.4 it is 0.5."""
    x = torch.tensor([[5.0], [6.0], [0.5], [5.0], [5.5]])
    assert divide_and_conquer(x, 1, indices([[0]])).item() == 5.375


def test_where_nobody_is_always_good_those_good_most_often_count():
    """Three iterations drop two of four rows each: rows 2 and 3, 2 and 0, 3 and 1."""
    x = torch.zeros(4, 3)
    for k, (far, farther) in enumerate([(2, 3), (2, 0), (3, 1)]):
        x[far, k], x[farther, k] = 5, -6
    x[:, 0] += torch.tensor([0.0, 0.1, 0.0, 0.0])
    assert divide_and_conquer(x, 2, indices([[0], [1], [2]])).tolist() == pytest.approx(((x[0] + x[1]) / 2).tolist())


def test_floors_the_share_as_written():
    """0.29 * 100 is 28.999999999999996 in binary."""
    x = torch.arange(200.0)[:, None] ** 2
    assert (Dnc(100, 0.29, 1, 1).weights(Updates(x), world.oracle()) > 0).sum() == 171


@pytest.mark.parametrize("f", range(1, 6))
def test_n_minus_f_equal_rows_win(f, draw):
    """As long as the others are one point too: v leads to it, and it is farther from the mean."""
    x = torch.linspace(-1, 1, D).repeat(N, 1)
    x[:f] = torch.linspace(50, 90, D)
    result = divide_and_conquer(x[torch.randperm(N, generator=draw)], f, indices([list(range(D))]))
    torch.testing.assert_close(result, x[-1])


def test_non_finite_rows_count_among_the_f(draw):
    """Also where the coordinates drawn are finite."""
    x = torch.randn(N, D, generator=draw, dtype=torch.float64)
    x[3, 5] = torch.nan
    expected, *_ = peers.dnc(np.delete(x.numpy(), 3, 0), 1, SETS[:1])
    np.testing.assert_allclose(divide_and_conquer(x, 2, indices(SETS[:1])).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("huge", [1e6, 1e12, 1e30])
def test_how_huge_a_row_is_does_not_matter(huge, draw):
    """One row moves the mean; the one that is dropped beside it is the farthest from that mean."""
    x = torch.randn(N, D, generator=draw)
    x[2] = huge
    result = divide_and_conquer(x, 2, indices([list(range(D))]))
    along = x.double() @ torch.ones(D).double()
    keep = [i for i in range(N) if i not in (2, int(along.argmin()))]
    torch.testing.assert_close(result, x[keep].mean(0))


def test_equal_rows_are_their_mean():
    x = torch.full((5, 3), 0.1)
    torch.testing.assert_close(divide_and_conquer(x, 2, indices([[0, 1]])), x[0])
    torch.testing.assert_close(divide_and_conquer(x[:1], 0, indices([[0, 1]])), x[0])


def test_the_class_draws_the_coordinates(draw):
    x = torch.randn(N, world.D, generator=draw)
    everything = Dnc(3, 1.0, 1, 10_000).aggregate(Updates(x), world.oracle())
    torch.testing.assert_close(everything.update, divide_and_conquer(x, 3, [torch.arange(world.D)]))
    assert sorted(everything.weights.tolist()) == [0] * 3 + [1 / 8] * 8
    generator = world.oracle().generator("dnc")
    draws = [torch.randperm(world.D, generator=generator)[:5] for _ in range(4)]
    assert len({tuple(drawn.tolist()) for drawn in draws}) == 4
    some = Dnc(3, 1.0, 4, 5).aggregate(Updates(x), world.oracle())
    torch.testing.assert_close(some.update, divide_and_conquer(x, 3, draws))


def test_a_large_update_hides_a_smaller_one_beside_it(draw):
    """What the guarantee denies: mu moves to the largest update, so that the second largest is nearest to it."""
    honest = torch.randn(9, 5, generator=draw)
    rows = torch.cat([honest, torch.full((1, 5), 1e12), torch.full((1, 5), 1e6)])
    found = divide_and_conquer(rows, 2, 5 * [torch.arange(5)])
    assert found.norm() > 1e4 * honest.norm(dim=1).max()
