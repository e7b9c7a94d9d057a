import numpy as np
import pytest
import torch

from lightning_fl import Updates
from lightning_fl.aggregator.centred_clipping import (
    CentredClipping,
    SequentialCentredClipping,
    centred_clipping_weights,
    sequential_centred_clipping_weights,
    similarity_buckets,
)
from lightning_fl.aggregator.draw_order import draw_order
from lightning_fl.contract import hostile, world
from lightning_fl.updates.products import gram_matrix
from tests.aggregator import reference

N, D = 9, 5
X = torch.tensor(reference.X)
BUCKETS = [[3, 0, 5], [6, 1], [2, 4]]


def centred_clipping(x, radius=10.0, start=None, n_iterations=1):
    """The rule where the last round gave this."""
    rule = CentredClipping(radius, n_iterations)
    if start is not None:
        rule.load_state_dict({"centre": start})
    return rule(x)


def sequential_centred_clipping(x, buckets, radius=1.0, start=None, average_first=False):
    """The rule's centre after these buckets."""
    rows, start = Updates(x), x.new_zeros(x.shape[1]) if start is None else start
    gram, buckets = rows.centred_with(start[None]).gram, list(map(torch.as_tensor, buckets))
    coefficients, _ = sequential_centred_clipping_weights(gram, buckets, radius, average_first)
    return rows.combine(coefficients[:-1]) + coefficients[-1].to(start) * start


def close(found, expected, atol=1e-7):
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=atol)


@pytest.mark.parametrize("start", [None, 0.3])
@pytest.mark.parametrize("radius", [0.1, 2.0, 1e9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", reference.PROBLEMS)
def test_agrees_with_the_loop(name, dtype, radius, start):
    x = torch.as_tensor(reference.problem(name, N, D), dtype=dtype)
    before, rows = x.clone(), x.double().numpy()
    v = None if start is None else x.new_full((D,), start)
    begin = None if v is None else v.double().numpy()
    tolerance = {"rtol": 1e-5 if dtype == torch.float32 else 1e-8, "atol": 1e-6 if dtype == torch.float32 else 1e-9}
    for steps in [1, 3]:
        result = centred_clipping(x, radius, v, steps)
        np.testing.assert_allclose(result, reference.centred_clipping(rows, radius, begin, steps), **tolerance)
    buckets = [[4, 1], [0], [7, 8, 2], [3, 5, 6]]
    for first in [False, True]:
        result = sequential_centred_clipping(x, buckets, radius, v, first)
        expected = reference.sequential_centred_clipping(rows, buckets, radius, begin, first)
        np.testing.assert_allclose(result, expected, **tolerance)
    assert result.dtype == dtype
    assert torch.equal(x, before)


def test_literal():
    """The factors are those of the lengths 0, 1.12, 2.01, 2.39, 3.20, 1.30 and 13.5."""
    close(centred_clipping(X, 1.0), [0.4938284, 0.44297317])
    _, factors = centred_clipping_weights(gram_matrix(X, torch.zeros(1, 2).double()), 1.0)
    close(factors, [1, 0.894427, 0.497519, 0.419222, 0.312959, 0.766965, 0.074329], 1e-6)
    close(centred_clipping(X, 1.0, n_iterations=3), [0.87303656, 0.87945572])
    first = centred_clipping(X, 10.0)
    close(first, [1.77613449, 0.17290753])
    close(centred_clipping(X + 0.5, 10.0, first), [2.40969774, 0.57465461])
    torch.testing.assert_close(centred_clipping(X, 1e9), X.mean(0))


def test_literal_sequential():
    close(sequential_centred_clipping(X, BUCKETS, 1.0), [0.87330416, 1.08139018])
    close(sequential_centred_clipping(X, BUCKETS, 1.0, average_first=True), [1.14624866, 0.90060799])


def test_an_update_named_twice_counts_twice():
    rows = torch.tensor([[0.5], [7.0]])
    assert sequential_centred_clipping(rows, [[0, 0]], 1.0).tolist() == [0.5]
    # The mean of 0.5, 0.5 and 7 is clipped to 1; then each difference, (-0.5 - 0.5 + 1) / 3 from 1.
    assert sequential_centred_clipping(rows, [[0, 0, 1]], 1.0, average_first=True).tolist() == [1.0]
    assert sequential_centred_clipping(rows, [[1], [0, 0, 1]], 1.0).tolist() == [1.0]


def test_literal_buckets():
    """By cosine with (1, 1) the rows are 0 6 2 | 4 1 | 5 3: 0, 0.05, 0.77, 0.91, 0.95, 0.976, 0.978."""
    cosines = torch.nan_to_num(X @ torch.ones(2).double() / X.norm(dim=1) / 2**0.5)
    as_sorted = cosines.argsort(stable=True)
    buckets = similarity_buckets(cosines, 3, as_sorted)
    assert [bucket.tolist() for bucket in buckets] == [[0, 4, 5], [6, 1, 3], [2]]
    buckets = similarity_buckets(cosines, 3, torch.tensor([2, 3, 1, 6, 4, 5, 0]))
    assert [bucket.tolist() for bucket in buckets] == [[2, 1, 3], [6, 4, 5], [0]]
    buckets = similarity_buckets(None, 3, torch.tensor([2, 3, 1, 6, 4, 5, 0]))
    assert [bucket.tolist() for bucket in buckets] == [[2, 3, 1], [6, 4, 5], [0]]


def test_a_huge_row_moves_it_by_the_radius_over_n():
    zeros = torch.zeros(N - 1, D)
    for value in [1e30, -1e30, 1e6]:
        x = torch.cat([zeros, torch.full((1, D), value)])
        assert centred_clipping(x, 0.9).norm().item() == pytest.approx(0.1)
        assert sequential_centred_clipping(x, [[1, 2], [0, 8, 3]], 0.9).norm().item() == pytest.approx(0.3)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_non_finite_row_moves_nothing_and_still_counts(value):
    """As if it lay at the centre; with several steps, at the moving centre."""
    x = torch.randn(N, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    start = torch.ones(D, dtype=torch.float64)
    broken, still = x.clone(), x.clone()
    broken[3], still[3] = value, start
    torch.testing.assert_close(centred_clipping(broken, 0.5, start), centred_clipping(still, 0.5, start))
    for first in [False, True]:
        found = sequential_centred_clipping(broken, [[3, 4]], 0.5, start, first)
        torch.testing.assert_close(found, sequential_centred_clipping(still, [[3, 4]], 0.5, start, first))
        assert sequential_centred_clipping(broken, [[3]], 0.5, start, first).tolist() == start.tolist()


def test_a_row_at_the_centre_is_not_zero_by_zero():
    x = torch.ones(4, 2)
    assert centred_clipping(x, 1.0, torch.ones(2)).tolist() == [1, 1]
    assert sequential_centred_clipping(x, [[0, 1]], 1.0, torch.ones(2), True).tolist() == [1, 1]


@pytest.mark.parametrize("seed", range(5))
def test_moves_with_the_rows(seed):
    """Scale with the radius, rotation, order, and translation together with the start."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(N, D, generator=draw, dtype=torch.float64)
    start, shift = torch.randn(2, D, generator=draw, dtype=torch.float64)
    rotation = torch.linalg.qr(torch.randn(D, D, generator=draw, dtype=torch.float64)).Q
    order = torch.randperm(N, generator=draw)
    found = centred_clipping((3 * x @ rotation + shift)[order], 1.5, 3 * start @ rotation + shift, 2)
    torch.testing.assert_close(found, 3 * centred_clipping(x, 0.5, start, 2) @ rotation + shift)


@pytest.mark.parametrize("value", hostile.VALUES)
def test_hostile_rows_do_not_break_it(value):
    """Each step goes at most a radius."""
    honest = torch.randn(N, D, generator=torch.Generator().manual_seed(0))
    for entries in [None, 1]:
        x = hostile.rows(honest, [value] * 4, entries)
        assert centred_clipping(x, 0.5, n_iterations=3).norm() <= 1.5 * (1 + 1e-6)
        assert sequential_centred_clipping(x, [[0, 9], [10, 11, 2]], 0.5).norm() <= 1 + 1e-6


@pytest.mark.parametrize("rule", [CentredClipping(1.0, 2), SequentialCentredClipping(1.0)])
def test_a_round_starts_at_the_last_ones_result(rule):
    first, second = world.updates(), Updates(world.honest_updates(12, seed=1))
    begin = rule.aggregate(first, world.oracle()).update
    rule.on_train_batch_end()
    aggregation = rule.aggregate(second, world.oracle(index=1))
    weights = aggregation.weights.float()
    torch.testing.assert_close(weights @ second.rows + (1 - weights.sum()) * begin, aggregation.update)
    assert aggregation.trust.sum().item() == pytest.approx(1)
    if isinstance(rule, CentredClipping):
        torch.testing.assert_close(aggregation.update, centred_clipping(second.rows, 1.0, begin, 2))


def test_the_buckets_of_a_round_follow_the_clients_and_the_cosines():
    rule, rows = SequentialCentredClipping(1.0), world.honest_updates(7)
    order = [3, 1, 6, 0, 2, 5, 4]
    for index in range(3):
        here, there = (
            rule.aggregate(updates, world.oracle(index=index))
            for updates in [Updates(rows[order], ids=order), Updates(rows, ids=range(7))]
        )
        torch.testing.assert_close(here.update, there.update)
        torch.testing.assert_close(here.weights, there.weights[order])
        rule.on_train_batch_end()
    assert len({float(rule.aggregate(Updates(rows), world.oracle(index=t)).update[0]) for t in range(4)}) > 1


@pytest.mark.parametrize(("n_clusters", "average_first"), [(2, False), (3, True)])
def test_the_sequential_class_goes_through_buckets_of_the_clusters(n_clusters, average_first):
    """Random ones in the first round; a row without direction has the cosine 0."""
    rule, last = SequentialCentredClipping(0.4, n_clusters, average_first), None
    for index in range(3):
        rows, server = world.honest_updates(7, seed=index), world.oracle(index=index)
        rows[4] = 0
        updates = Updates(rows, ids=range(7))
        cosines = None if last is None else torch.nn.functional.cosine_similarity(rows, last[None])
        buckets = similarity_buckets(cosines, n_clusters, draw_order(updates, server.derive_seed("buckets")))
        last = sequential_centred_clipping(rows, buckets, 0.4, last, average_first)
        torch.testing.assert_close(rule.aggregate(updates, server).update, last)
        rule.on_train_batch_end()


def test_trust_is_the_share_of_the_last_steps_factors():
    """From 0 the factors are 1, 1/2 and 1/4, which leads to 5/6; from there they are 1, 6/7 and 6/19."""
    updates = Updates(torch.tensor([[0.5], [2.0], [4.0]]))
    found = CentredClipping(1.0, 2).aggregate(updates, world.oracle())
    assert found.trust.tolist() == pytest.approx([133 / 289, 114 / 289, 42 / 289])
    assert found.diagnostics == {"clipped": pytest.approx(2 / 3)}
