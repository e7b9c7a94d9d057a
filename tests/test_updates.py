"""The Gram matrix and the combination that every weighting rests on."""

import pytest
import torch
from torch import nn

from lightning_fl import SettingError, Updates
from lightning_fl.updates import (
    _COLUMNS_CPU,
    finite_rows,
    flatten,
    gram_matrix,
    squared_distances,
    trainable,
    unflatten,
)

NAN, INF = float("nan"), float("inf")


def slow_gram(rows):
    """All inner products, one pair at a time."""
    return torch.tensor([[float((a.double() * b.double()).sum()) for b in rows] for a in rows], dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d", [1, 5, _COLUMNS_CPU - 1, _COLUMNS_CPU, _COLUMNS_CPU + 1, 20_000])
def test_gram_matrix_is_all_inner_products(d, dtype, draw):
    rows = torch.randn(7, d, generator=draw, dtype=dtype)
    gram = gram_matrix(rows)
    assert gram.dtype == torch.float64
    torch.testing.assert_close(gram, slow_gram(rows), rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize(("n", "d"), [(5, 7), (33, 1000), (64, 8193)])
def test_gram_matrix_is_exactly_symmetric(n, d, draw):
    gram = gram_matrix(torch.randn(n, d, generator=draw))
    assert torch.equal(gram, gram.T)


def test_gram_matrix_of_blocks_is_that_of_the_stacked_rows(draw):
    rows = torch.randn(6, 9000, generator=draw)
    torch.testing.assert_close(gram_matrix(rows[:2], rows[2:]), gram_matrix(rows), rtol=1e-13, atol=1e-12)


def test_gram_matrix_keeps_scales_apart_and_does_not_overflow():
    rows = torch.tensor([[1e30, 1e30], [1e-6, -1e-6], [3e38, 0.0]])
    big, small, huge = (float(row[0]) for row in rows)
    expected = torch.tensor(
        [[2 * big * big, 0, big * huge], [0, 2 * small * small, small * huge], [big * huge, small * huge, huge * huge]],
        dtype=torch.float64,
    )
    torch.testing.assert_close(gram_matrix(rows), expected, rtol=1e-15, atol=0)


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_hostile_row_spoils_its_own_row_and_column_only(bad, draw):
    rows = torch.randn(40, 9000, generator=draw)
    others = [i for i in range(40) if i != 13]
    expected = slow_gram(rows[others])
    rows[13, 8500] = bad
    gram = gram_matrix(rows)
    assert not gram.diagonal()[13].isfinite()
    torch.testing.assert_close(gram[others][:, others], expected, rtol=1e-12, atol=1e-10)
    assert finite_rows(gram.diagonal(), "rule").tolist() == others
    squares = Updates(rows).squares
    torch.testing.assert_close(squares[others], expected.diagonal(), rtol=1e-12, atol=0)
    assert not squares[13].isfinite()


def test_products_with_a_vector_are_the_gram_matrix_s(draw):
    rows = torch.randn(5, 9000, generator=draw)
    expected = [sum(float(a) * float(b) for a, b in zip(row, rows[0], strict=True)) for row in rows]
    torch.testing.assert_close(
        Updates(rows).products(rows[0]), torch.tensor(expected, dtype=torch.float64), rtol=1e-11, atol=1e-9
    )


def test_finite_rows_need_one():
    with pytest.raises(SettingError, match=r"krum needs at least one update without NaN and inf, got none among 2"):
        finite_rows(torch.tensor([NAN, INF]).double(), "krum")


def test_squared_distances_survive_an_offset(draw):
    # float32 shortcuts return garbage here: rows near 1e3 that differ by 1e-2.  In float64 an inner product of 5e8 is
    # off by some 1e-6, a squared distance is 0.1.
    rows = 1000 + 0.01 * torch.randn(40, 500, generator=draw)
    wide = rows.double()
    expected = ((wide[:, None] - wide) ** 2).sum(2)
    torch.testing.assert_close(squared_distances(gram_matrix(rows)), expected, rtol=1e-4, atol=1e-5)


def test_squared_distances_of_equal_rows_are_about_zero_and_never_negative(draw):
    rows = 1000 * torch.randn(1, 300, generator=draw).repeat(30, 1)
    distances = squared_distances(gram_matrix(rows))
    assert (distances >= 0).all()
    assert (distances.diagonal() == 0).all()
    assert distances.max() < 1e-12 * rows[0].double().square().sum()


def test_data_weights_are_shares():
    rows = torch.zeros(3, 2)
    assert Updates(rows).data_weights.tolist() == pytest.approx([1 / 3] * 3)
    shares = Updates(rows, torch.tensor([1.0, 0.0, 3.0])).data_weights
    assert shares.tolist() == [0.25, 0, 0.75]
    assert shares.dtype == torch.float64


@pytest.mark.parametrize(
    "weights", [[1.0, 1.0], [1.0, -1.0, 1.0], [0.0, 0.0, 0.0], [1.0, NAN, 1.0], [1.0, INF, 1.0], [[1.0, 1.0, 1.0]]]
)
def test_unfit_weights_are_refused(weights, unchecked):
    with pytest.raises(SettingError, match=r"weights must be 3 finite numbers >= 0 with a positive sum"):
        Updates(torch.zeros(3, 2), torch.tensor(weights))


@pytest.mark.parametrize("shape", [(3,), (0, 2), (3, 0), (3, 2, 1)])
def test_rows_that_are_no_matrix_are_refused(shape, unchecked):
    with pytest.raises(SettingError, match=r"updates must be a matrix \(n, d\)"):
        Updates(torch.zeros(shape))


def test_integers_are_refused(unchecked):
    with pytest.raises(SettingError, match=r"must be floating point, got torch.int64"):
        Updates(torch.zeros(3, 2, dtype=torch.int64))


def test_gram_with_gives_the_updates_own_gram_too(draw):
    rows, extra = torch.randn(5, 9000, generator=draw), torch.randn(2, 9000, generator=draw)
    updates = Updates(rows)
    together = updates.gram_with(extra)
    torch.testing.assert_close(together, slow_gram(torch.cat([rows, extra])), rtol=1e-12, atol=1e-11)
    assert torch.equal(updates.gram, together[:5, :5])
    assert updates.gram.data_ptr() == together.data_ptr()  # not computed again


def test_gram_with_rows_of_another_length_is_refused():
    with pytest.raises(SettingError, match="server rows must have the updates' length 3, got 2"):
        Updates(torch.ones(2, 3)).gram_with(torch.ones(1, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_combine_is_the_weighted_sum(dtype, draw):
    rows = torch.randn(6, 50, generator=draw, dtype=dtype)
    weights = torch.randn(6, generator=draw, dtype=torch.float64)
    kept = rows.clone(), weights.clone()
    combined = Updates(rows).combine(weights)
    expected = sum(float(a) * row.double() for a, row in zip(weights, rows, strict=True))
    assert combined.dtype == dtype
    torch.testing.assert_close(combined.double(), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(rows, kept[0])
    assert torch.equal(weights, kept[1])


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_row_of_weight_zero_has_no_influence(bad):
    updates = Updates(torch.tensor([[1.0, 2.0], [bad, 5.0], [3.0, 4.0]]))
    assert updates.combine(torch.tensor([0.5, 0.0, 0.5])).tolist() == [2, 3]
    assert not updates.combine(torch.tensor([0.5, 0.1, 0.4])).isfinite().all()
    assert updates.combine(torch.zeros(3)).tolist() == [0, 0]


def test_flatten_and_unflatten_are_inverse(draw):
    like = [torch.zeros(2, 3), torch.zeros(()), torch.zeros(4)]
    vector = torch.randn(11, generator=draw)
    parts = unflatten(vector, like)
    assert [part.shape for part in parts] == [tensor.shape for tensor in like]
    assert parts[0].tolist() == vector[:6].view(2, 3).tolist()
    assert torch.equal(flatten(parts), vector)
    batch = torch.randn(5, 11, generator=draw)
    assert [part.shape for part in unflatten(batch, like)] == [(5, 2, 3), (5,), (5, 4)]
    assert torch.equal(unflatten(batch, like)[2], batch[:, 7:])


def test_trainable_are_the_parameters_that_learn():
    model = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.Linear(3, 1))
    model[0].requires_grad_(False)
    found = trainable(model)
    assert list(found) == ["1.weight", "1.bias", "2.weight", "2.bias"]
    assert not any(value.requires_grad for value in found.values())
    assert found["2.bias"].data_ptr() == model[2].bias.data_ptr()  # no copy
