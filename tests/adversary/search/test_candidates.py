"""Rows followed by copies of a combination answer as the stacked rows do."""

import pytest
import torch

from lightning_fl import Updates
from lightning_fl.adversary.search.candidates import Candidates
from lightning_fl.adversary.search.estimate import SampledCandidates, sample_columns
from lightning_fl.updates.combinations import inner
from lightning_fl.updates.mixed import mix
from lightning_fl.updates.products import squared_distances
from tests.slow import slow_distances, slow_gram


def made(draw, offset=0.0, copies=3):
    rows, vectors = offset + torch.randn(9, 700, generator=draw), torch.randn(3, 700, generator=draw)
    vectors[0] = rows.mean(0)
    return rows, vectors, Candidates(Updates(rows), vectors, copies, torch.arange(1.0, 10.0 + copies))


@pytest.mark.parametrize("offset", [0.0, 30.0])
@pytest.mark.parametrize("c", [[1.0, 0.0, 0.0], [1.0, -3.0, 0.5], [-7.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1e4, 0.0]])
def test_rows_followed_by_copies_of_a_combination_are_what_the_stacked_rows_are(c, offset, draw):
    rows, vectors, candidates = made(draw, offset)
    updates, server = candidates.by(c), torch.randn(2, 700, generator=draw)
    y = (torch.tensor(c).double() @ vectors.double()).expand(3, -1)
    stacked = torch.cat([rows.double(), y])
    both = torch.cat([stacked, server.double()])
    close = {"rtol": 1e-9, "atol": 1e-8 * (1 + y.square().sum().item() / 3)}
    torch.testing.assert_close(updates.gram, slow_gram(stacked), **close)
    torch.testing.assert_close(updates.gram_with(server), slow_gram(both), **close)
    torch.testing.assert_close(updates.squares, slow_gram(stacked).diagonal(), **close)
    torch.testing.assert_close(updates.norms(1.0), stacked.abs().sum(1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(updates.distances, slow_distances(stacked), **close)
    torch.testing.assert_close(squared_distances(updates.centred_with(server).gram), slow_distances(both), **close)
    centred = updates.centred_with(server)
    back = centred.gram + centred.offset[:, None] + centred.offset + centred.square
    torch.testing.assert_close(back, slow_gram(both), **close)
    assert (updates.distances[9:, 9:] == 0).all()
    torch.testing.assert_close(updates.rows.double(), stacked, rtol=1e-5, atol=1e-5 * (1 + y.abs().max().item()))
    weights = torch.randn(12, generator=draw)
    expected = weights.double() @ stacked
    close = {"rtol": 1e-5, "atol": 1e-5 * (1 + expected.abs().max().item())}
    torch.testing.assert_close(updates.combine(weights).double(), expected, **close)
    mixed = mix(updates, torch.eye(12).flip(0)[:7])
    torch.testing.assert_close(mixed.combine(weights[:7]).double(), weights[:7].double() @ stacked.flip(0)[:7], **close)
    assert updates.data_weights.tolist() == pytest.approx([i / 78 for i in range(1, 13)])


def test_a_combination_is_known_by_its_inner_products_or_by_its_vector(draw):
    rows, _vectors, candidates = made(draw, 5.0)
    server, weights, other = (torch.randn(*shape, generator=draw) for shape in [(2, 700), (12,), (14,)])
    for updates in [candidates.by([1.0, 2.0, 0.0]), mix(candidates.by([1.0, 2.0, 0.0]), torch.eye(12).roll(5, 0))]:
        combination = updates.combination(weights, server, torch.tensor([0.5, -2.0]))
        assert candidates.knows(combination.updates)
        expected = weights.double() @ updates.rows.double() + torch.tensor([0.5, -2.0]).double() @ server.double()
        torch.testing.assert_close(combination.vector.double(), expected, rtol=1e-5, atol=1e-5)
        known = torch.cat([combination.updates.rows, server]).double()
        against = other.double() @ known
        product = inner(combination.centred, combination.coefficients, other.double())
        assert product.item() == pytest.approx((expected @ against).item(), rel=1e-6)
        own = inner(combination.centred, combination.coefficients, combination.coefficients)
        assert own.item() == pytest.approx(expected.square().sum().item(), rel=1e-6)
    assert not candidates.knows(Updates(rows))


def test_a_combination_in_which_a_part_is_not_finite_is_not(draw):
    assert not made(draw)[2].by([1.0, float("inf"), 0.0]).combine(torch.ones(12)).isfinite().all()


def test_what_a_function_makes_of_rows_is_asked_once(draw):
    rows, vectors, candidates = made(draw)
    sampled, asked = SampledCandidates(candidates, sample_columns(vectors, 50)), []

    def longest(x):
        asked.append(len(x))
        return x.abs().max(1).values

    for c, source in [([1.0, 2.0, 0.0], candidates), ([0.0, -1.0, 3.0], candidates), ([0.0, 0.0, 9.0], sampled)]:
        y = torch.tensor(c) @ vectors
        expected = torch.cat([rows, y.expand(3, -1)]).abs().max(1).values
        torch.testing.assert_close(source.by(c).by_row(longest), expected)
    assert asked == [9, 1, 1, 1]


def test_a_vector_that_is_zero_in_some_columns_costs_no_digit_there():
    """As a coordinate is in columns that DnC has drawn, however far a search goes along it."""
    rows = Updates(1e3 + torch.randn(9, 50, generator=torch.Generator().manual_seed(0)))
    vectors = torch.stack([rows.rows.mean(0), torch.zeros(50)])
    far, near = (Candidates(rows, vectors, 3, torch.ones(12)).by([1.0, c]) for c in (-1e9, 0.0))
    assert torch.equal(far.distances, near.distances)
    assert Candidates(rows, vectors[1:], 3, torch.ones(12)).by([5.0]).norms()[-1] == 0
