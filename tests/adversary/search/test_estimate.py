"""Estimates from some columns: what is exact stays so, what is estimated comes close, nothing else is answered."""

import numpy as np
import pytest
import torch

from lightning_fl import Updates
from lightning_fl.adversary.search.candidates import Candidates
from lightning_fl.adversary.search.estimate import SampledCandidates, sample_columns
from lightning_fl.contract import conf, world
from lightning_fl.updates.updates import Combination

H, B, D, K = 15, 3, 3000, 300
NAN = float("nan")


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def heavy_tailed(seed=0):
    """Rows whose columns have spreads that differ a hundredfold, as a network's do."""
    return (1 + random(H, D, seed=seed)) * torch.exp(1.5 * random(D, seed=9))


def directions(rows):
    coordinate = torch.zeros(D).index_fill(0, rows.std(0).argmax(), 1)
    return torch.stack([rows.mean(0), rows.std(0), rows.mean(0).sign(), coordinate])


def sampled(rows, k=K):
    vectors = directions(rows)
    candidates = Candidates(Updates(rows), vectors, B, torch.ones(H + B))
    return SampledCandidates(candidates, sample_columns(vectors, k))


def whole(rows, c):
    return torch.cat([rows, (torch.tensor(c) @ directions(rows)).expand(B, -1)])


def test_squares_in_the_directions_are_estimated():
    rows = heavy_tailed()
    vectors = directions(rows)
    sample = sample_columns(vectors, K)
    assert len(sample.index) <= K
    for v in [*vectors, vectors[0] + 2 * vectors[1]]:
        found = (sample.stands_for @ v[sample.index].double() ** 2).item()
        assert found == pytest.approx((v.double() ** 2).sum().item(), rel=0.15)


def test_a_column_like_no_other_is_always_there():
    for j in (0, 1, D - 1):
        vectors = torch.ones(2, D).index_put((torch.tensor([1]), torch.arange(D)), torch.zeros(D))
        vectors[1, j] = 1e-3  # alone in its direction, however short that is
        sample = sample_columns(vectors, K)
        assert j in sample.index.tolist()
        assert sample.stands_for[sample.index == j].item() == 1
        assert sample.alone.tolist() == [j]


def test_same_vectors_same_columns_and_no_randomness():
    vectors, state = directions(heavy_tailed()), torch.random.get_rng_state()
    assert torch.equal(sample_columns(vectors, K).index, sample_columns(vectors.clone(), K).index)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("vectors", [torch.ones(2, 20), torch.zeros(2, D), torch.full((2, D), NAN)])
def test_no_sample_where_none_helps(vectors):
    assert sample_columns(vectors, 10 if vectors.shape[1] == 20 else K) is None


RULES = ["trimmed_mean", "median", "meamed", "phocas", "sign_vote", "bulyan", "nnm_trimmed_mean", "nnm_median", "arc"]


@pytest.mark.parametrize("c", [[1.0, 0.5, 0.0, 0.0], [1.0, 0.0, -20.0, 0.0], [-3.0, 0.0, 0.0, 0.0]])
@pytest.mark.parametrize("name", RULES)
def test_a_coordinate_rule_answers_in_the_sample_what_it_answers_to_all(name, c):
    rows, rule = heavy_tailed(), conf.make("aggregator", name, f=B)
    some = sampled(rows)
    answer = rule.aggregate(some.by(c), world.oracle()).update
    expected = rule.aggregate(Updates(whole(rows, c)), world.oracle()).update
    index = some.sample.index
    torch.testing.assert_close(answer[index], expected[index], rtol=1e-4, atol=1e-4)
    elsewhere = torch.ones(D, dtype=torch.bool).index_fill(0, index, False)
    assert answer[elsewhere].isnan().all()
    assert some.estimates
    assert not some.guesses


@pytest.mark.parametrize("name", ["krum", "geometric_median", "nnm_krum", "average", "correntropy", "dnc", "signguard"])
def test_a_weighting_of_inner_products_is_exact(name):
    rows, rule, c = heavy_tailed(), conf.make("aggregator", name, f=B), [1.0, 0.4, 0.0, 0.0]
    some = sampled(rows)
    found = rule.aggregate(some.by(c), world.oracle())
    expected = rule.aggregate(Updates(whole(rows, c)), world.oracle())
    torch.testing.assert_close(found.weights.double(), expected.weights.double(), rtol=1e-5, atol=1e-6)
    assert isinstance(found.answer, Combination)
    assert not some.estimates
    torch.testing.assert_close(found.update, expected.update, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["aksel", "gas"])
def test_rules_that_weigh_by_sums_over_columns_are_told_apart_and_come_close(name):
    """The forged rows lie far beyond the others, so an estimate drops them as surely as the sums do."""
    rows, rule, c = heavy_tailed(), conf.make("aggregator", name, f=B), [1.0, 40.0, 0.0, 0.0]
    some = sampled(rows)
    found = rule.aggregate(some.by(c), world.oracle()).weights
    assert some.estimates
    assert some.guesses
    assert (found[H:] == 0).all()
    assert found.sum().item() == pytest.approx(1)


def test_sums_of_squares_over_columns_are_estimated():
    rows, c = heavy_tailed(), [1.0, 2.0, 0.0, 0.0]
    found = sampled(rows).by(c).by_block(lambda columns: columns.double().square().sum(1)).sum(0)
    np.testing.assert_allclose(found.numpy(), (whole(rows, c).double() ** 2).sum(1).numpy(), rtol=0.2)


def test_a_group_of_columns_stands_for_others_or_for_itself():
    rows = heavy_tailed()
    some = sampled(rows)
    groups = torch.arange(D).tensor_split(300)
    chosen, stand_for = some.by([1.0, 0.0, 0.0, 0.0]).held.some_of(groups)
    assert len(chosen) == len(stand_for) < 60
    assert 250 <= stand_for.sum().item() <= 350
    alone = some.sample.alone.tolist()
    assert alone
    for group, n in zip(chosen, stand_for.tolist(), strict=True):
        assert (n == 1) == bool(set(alone) & set(group.tolist()))
    few = groups[:20]
    assert some.by([1.0, 0.0, 0.0, 0.0]).held.some_of(few)[0] == few


def test_columns_and_products_that_a_rule_asks_for_are_exact():
    rows, c, v = heavy_tailed(), [1.0, -3.0, 0.0, 0.0], random(D, seed=3)
    some = sampled(rows)
    for index in (torch.tensor([5, 2, 77]), torch.tensor([5, 2, 78]), slice(10, 40), torch.tensor([5, 2, 77])):
        torch.testing.assert_close(some.by(c).columns(index).rows, whole(rows, c)[:, index], rtol=1e-5, atol=1e-4)
    expected = whole(rows, c).double() @ v.double()
    torch.testing.assert_close(some.by(c).products(v), expected, rtol=1e-5, atol=1e-2)


def test_a_row_that_is_broken_in_a_column_outside_the_sample_is_left_out():
    rows = heavy_tailed()
    some = sampled(rows)
    outside = next(j for j in range(D) if j not in some.sample.index.tolist())
    rows[4, outside] = NAN
    broken = SampledCandidates(Candidates(Updates(rows), some.whole.vectors, B, torch.ones(H + B)), some.sample)
    answer = broken.by([1.0, 0.0, 0.0, 0.0]).ordered("median").at(5, 5)
    others = torch.cat([rows[torch.arange(H) != 4], rows[:4].mean(0)[None] * 0 + some.whole.vectors[0]])
    others = torch.cat([others, some.whole.vectors[:1], some.whole.vectors[:1]])
    index = some.sample.index
    torch.testing.assert_close(answer[index], others[:, index].sort(0).values[5])
