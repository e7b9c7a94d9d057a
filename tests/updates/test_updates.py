"""What every rule may ask of the rows that it gets."""

import numpy as np
import pytest
import torch

from lightning_fl import SettingError, Updates
from lightning_fl.updates.mixed import mix
from lightning_fl.updates.products import squared_distances
from tests.slow import OFFSETS, shifted, slow_distances, slow_gram

NAN, INF = float("nan"), float("inf")


def test_products_with_a_vector_are_the_gram_matrix_s(draw):
    rows = torch.randn(5, 9000, generator=draw)
    expected = [sum(float(a) * float(b) for a, b in zip(row, rows[0], strict=True)) for row in rows]
    torch.testing.assert_close(
        Updates(rows).products(rows[0]), torch.tensor(expected, dtype=torch.float64), rtol=1e-11, atol=1e-9
    )


def test_data_weights_are_shares():
    rows = torch.zeros(3, 2)
    assert Updates(rows).data_weights.tolist() == pytest.approx([1 / 3] * 3)
    shares = Updates(rows, torch.tensor([1.0, 0.0, 3.0])).data_weights
    assert shares.tolist() == [0.25, 0, 0.75]
    assert shares.dtype == torch.float64


@pytest.mark.parametrize(
    "weights", [[1.0, 1.0], [1.0, -1.0, 1.0], [0.0, 0.0, 0.0], [1.0, NAN, 1.0], [1.0, INF, 1.0], [[1.0, 1.0, 1.0]]]
)
def test_unfit_weights_are_refused(weights):
    with pytest.raises(SettingError, match=r"weights must be 3 finite numbers >= 0 with a positive sum"):
        Updates(torch.zeros(3, 2), torch.tensor(weights))


@pytest.mark.parametrize("shape", [(3,), (0, 2), (3, 0), (3, 2, 1)])
def test_rows_that_are_no_matrix_are_refused(shape):
    with pytest.raises(SettingError, match=r"updates must be a matrix \(n, d\)"):
        Updates(torch.zeros(shape))


@pytest.mark.parametrize(("rows", "kind"), [([[1.0, 2.0]], "list"), (np.ones((1, 2)), "ndarray")])
def test_what_is_no_tensor_is_refused(rows, kind):
    with pytest.raises(SettingError, match=rf"updates must be a tensor, got {kind}; convert with torch.as_tensor"):
        Updates(rows)


def test_integers_are_refused():
    with pytest.raises(SettingError, match=r"must be floating point, got torch.int64"):
        Updates(torch.zeros(3, 2, dtype=torch.int64))


def test_gram_with_gives_the_updates_own_gram_too(draw):
    rows, extra = torch.randn(5, 9000, generator=draw), torch.randn(2, 9000, generator=draw)
    updates = Updates(rows)
    together = updates.gram_with(extra)
    torch.testing.assert_close(together, slow_gram(torch.cat([rows, extra])), rtol=1e-12, atol=1e-11)
    assert torch.equal(updates.gram, together[:5, :5])
    assert updates.gram.data_ptr() == together.data_ptr()  # not computed again


@pytest.mark.parametrize("offset", OFFSETS)
def test_centred_with_has_the_server_rows_too(offset, draw):
    rows, fine = shifted(25, 900, offset, draw, hostile=True)
    extra = rows[:2] + 3
    updates = Updates(rows)
    together = updates.centred_with(extra)
    keep = [*fine, 25, 26]
    expected = slow_distances(torch.cat([rows, extra])[keep])
    torch.testing.assert_close(squared_distances(together.gram)[keep][:, keep], expected, rtol=1e-12, atol=1e-12)
    assert updates.centred.gram.data_ptr() == together.gram.data_ptr()  # not computed again
    only = Updates(rows[12:13]).centred_with(extra)  # no finite row: the server's ones are right all the same
    torch.testing.assert_close(squared_distances(only.gram)[1:, 1:], expected[-2:, -2:], rtol=1e-12, atol=0)


def mixing(n, draw, kind):
    """Means of five neighbours, pairs, scales, or anything."""
    if kind == "means":
        order = torch.stack([torch.randperm(n, generator=draw)[:5] for _ in range(n)])
        return torch.zeros(n, n, dtype=torch.float64).scatter_(1, order, 0.2)
    if kind == "pairs":
        return torch.eye(n, dtype=torch.float64)[torch.randperm(n, generator=draw)].view(n // 2, 2, n).mean(1)
    if kind == "scales":
        return torch.rand(n, generator=draw, dtype=torch.float64).diag()
    return torch.randn(n + 3, n, generator=draw, dtype=torch.float64)


@pytest.mark.parametrize("kind", ["means", "pairs", "scales", "any"])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_mixed_is_what_the_product_would_be(kind, offset, draw):
    rows, extra = shifted(24, 700, offset, draw)[0], torch.randn(2, 700, generator=draw, dtype=torch.float64)
    matrix = mixing(24, draw, kind)
    explicit, mixed = Updates(matrix @ rows), mix(Updates(rows), matrix)
    both = torch.cat([matrix @ rows, extra])
    assert (mixed.n, mixed.d) == (len(matrix), 700)
    tolerance = {"rtol": 1e-9, "atol": 1e-11 * float(explicit.squares.max())}
    torch.testing.assert_close(mixed.gram, slow_gram(matrix @ rows), **tolerance)
    torch.testing.assert_close(mixed.squares, explicit.squares, **tolerance)
    torch.testing.assert_close(mixed.distances, slow_distances(matrix @ rows), **tolerance)
    torch.testing.assert_close(mixed.products(extra[0]), explicit.products(extra[0]), **tolerance)
    torch.testing.assert_close(mixed.gram_with(extra), slow_gram(both), **tolerance)
    centred = mixed.centred_with(extra)
    torch.testing.assert_close(squared_distances(centred.gram), slow_distances(both), **tolerance)
    back = centred.gram + centred.offset[:, None] + centred.offset + centred.square
    torch.testing.assert_close(back, slow_gram(both), **tolerance)
    weights = torch.randn(len(matrix), generator=draw)
    torch.testing.assert_close(mixed.combine(weights), explicit.combine(weights), rtol=1e-9, atol=1e-9 * (1 + offset))
    assert "rows" not in vars(mixed)
    torch.testing.assert_close(mixed.rows, matrix @ rows)
    index = torch.tensor([3, 699, 3])
    torch.testing.assert_close(mixed.columns(index).gram, slow_gram((matrix @ rows)[:, index]), **tolerance)
    torch.testing.assert_close(mixed.columns(slice(5, 9)).rows, mixed.rows[:, 5:9])


@pytest.mark.parametrize("kind", ["means", "pairs", "scales"])
@pytest.mark.parametrize("offset", OFFSETS)
def test_distances_of_mixed_rows_are_exact_at_any_offset(offset, kind, draw):
    """Also beside rows of 1e30 that have a share in others only."""
    rows, fine = shifted(24, 700, offset, draw, hostile=True)
    matrix = mixing(24, draw, kind)
    if kind != "scales":  # hostile rows have a share in a minority
        rest = mixing(len(fine), draw, kind)
        matrix[-len(rest) :] = 0
        matrix[-len(rest) :, fine] = rest
    broken = matrix[:, 12] != 0
    rest = ((matrix[:, 3:10] == 0).all(1) & ~broken).nonzero().flatten()
    beside = matrix[rest].sum(1) - matrix[rest[0]].sum()
    exact = matrix[rest][:, fine] @ (rows[fine] - rows[0]) + beside[:, None] * rows[0]
    distances = mix(Updates(rows), matrix).distances
    tolerance = 1e-9 + 1e-13 * offset
    torch.testing.assert_close(distances[rest][:, rest], slow_distances(exact), rtol=tolerance, atol=tolerance)
    assert (distances[broken][:, rest] == INF).all()


def test_mixed_rows_that_cancel_have_no_negative_square():
    """Its root would be NaN, which a rule that sorts or clusters takes for something."""
    for seed in range(20):
        x, y = torch.randn(2, 50, generator=torch.Generator().manual_seed(seed))
        mixed = mix(Updates(torch.stack([x, y, -(x + y)])), torch.full((1, 3), 1 / 3, dtype=torch.float64))
        assert mixed.squares.item() >= 0
        assert mixed.gram.item() >= 0


def test_mixing_composes(draw):
    rows = torch.randn(24, 60, generator=draw, dtype=torch.float64)
    first, second, third = (mixing(24, draw, kind) for kind in ["scales", "means", "pairs"])
    mixed = mix(mix(mix(Updates(rows), first), second), third)
    expected = third @ second @ first @ rows
    torch.testing.assert_close(mixed.rows, expected)
    torch.testing.assert_close(mixed.gram, expected @ expected.T)
    torch.testing.assert_close(mixed.combine(torch.ones(12)), expected.sum(0))


def test_mixed_rows_are_single_clients_only_if_scaled():
    weights, matrix = torch.tensor([1.0, 3.0]), torch.tensor([[0.0, 1.0], [0.5, 0.5]])
    updates = Updates(torch.ones(2, 3), weights, ids=[4, 9])
    scaled = mix(updates, torch.tensor([[2.0, 0.0], [0.0, 0.0]]))
    assert scaled.ids == [4, 9]
    assert scaled.data_weights.tolist() == [0.25, 0.75]
    mixed = mix(scaled, matrix)
    assert mixed.ids is None
    assert mixed.data_weights.tolist() == [0.5, 0.5]
    assert mix(mix(updates, matrix, weights), torch.eye(2)).data_weights.tolist() == [0.25, 0.75]


@pytest.mark.parametrize("bad", [NAN, INF])
def test_a_mixed_row_is_as_finite_as_its_parts(bad, draw):
    rows = torch.randn(4, 70, generator=draw)
    rows[3, 1], rows[2] = bad, 1e30
    matrix = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.0, 1e-30, 1e-30, 0.0], [0.5, 0.0, 0.0, 0.5], [0.0, 1.0, 0.0, 0.0]])
    for mixed in [mix(Updates(rows), matrix), mix(mix(Updates(rows), torch.eye(4)), matrix)]:
        expected = matrix[:, :3] @ rows[:3]
        for finite in [mixed.squares, mixed.gram.diagonal(), mixed.products(rows[0]), mixed.centred.gram.diagonal()]:
            assert finite.isfinite().tolist() == [True, True, False, True]
        assert mixed.rows.isfinite().all(1).tolist() == [True, True, False, True]
        fine = [0, 1, 3]
        torch.testing.assert_close(mixed.rows[fine], expected[fine])
        torch.testing.assert_close(mixed.gram[fine][:, fine], slow_gram(expected[fine]), rtol=1e-6, atol=1e-5)
        torch.testing.assert_close(mixed.combine(torch.tensor([1.0, 0.0, 0.0, 1.0])), expected[0] + expected[3])


def test_columns_keep_weights_and_ids(draw):
    rows = torch.randn(5, 40, generator=draw)
    some = Updates(rows, torch.arange(1.0, 6.0), ids=range(5)).columns(torch.tensor([7, 0, 39]))
    assert torch.equal(some.rows, rows[:, [7, 0, 39]])
    torch.testing.assert_close(some.gram, slow_gram(rows[:, [7, 0, 39]]))
    torch.testing.assert_close(some.data_weights, torch.arange(1.0, 6.0).double() / 15)
    assert list(some.ids) == list(range(5))
    scaled = mix(Updates(rows, torch.arange(1.0, 6.0), ids=range(5)), 2 * torch.eye(5)).columns(slice(3, 9))
    assert (scaled.data_weights.tolist(), list(scaled.ids)) == (some.data_weights.tolist(), list(range(5)))


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


def test_rows_that_autograd_follows_are_taken_as_numbers(draw):
    rows, extra = torch.randn(6, 9, generator=draw), torch.randn(2, 9, generator=draw)
    plain, followed = Updates(rows), Updates(rows.clone().requires_grad_())
    extra_followed = extra.clone().requires_grad_()
    assert torch.equal(followed.centred.gram, plain.centred.gram)
    assert torch.equal(followed.gram_with(extra_followed), plain.gram_with(extra))
    assert torch.equal(followed.centred_with(extra_followed).gram, plain.centred_with(extra).gram)
    assert torch.equal(followed.squares, plain.squares)
    result = followed.combine(followed.data_weights)
    assert torch.equal(result, plain.combine(plain.data_weights))
    assert not result.requires_grad


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_row_of_weight_zero_has_no_influence(bad):
    updates = Updates(torch.tensor([[1.0, 2.0], [bad, 5.0], [3.0, 4.0]]))
    assert updates.combine(torch.tensor([0.5, 0.0, 0.5])).tolist() == [2, 3]
    assert not updates.combine(torch.tensor([0.5, 0.1, 0.4])).isfinite().all()
    assert updates.combine(torch.zeros(3)).tolist() == [0, 0]


@pytest.mark.parametrize("length", [1.1e75, 1e154, 1e300])
def test_a_row_beyond_the_longest_is_as_one_of_inf(length, draw):
    """Wherever a rule asks; the others keep every digit, whether they are few or many."""
    rows, extra = torch.randn(5, 9000, generator=draw).double(), torch.randn(2, 9000, generator=draw).double()
    for some in ([3], [0, 1, 3, 4]):
        rest = [i for i in range(5) if i not in some]
        long, broken = rows.clone(), rows.clone()
        long[some], broken[some] = 0.0, INF
        long[some, 77] = torch.tensor([length, -length, length, length])[: len(some)].double()
        for found in (Updates(long), mix(Updates(long), torch.eye(5))):
            expected = Updates(broken)
            for lengths in (found.squares, found.norms(), found.gram.diagonal(), found.gram_with(extra).diagonal()[:5]):
                assert (~lengths.isfinite()).nonzero().flatten().tolist() == some
            assert torch.equal(found.gram[rest][:, rest], expected.gram[rest][:, rest])
            if len(rest) > 2:  # else the origin lies among the long ones
                torch.testing.assert_close(found.distances, expected.distances, rtol=1e-12, atol=0)
                assert found.centred_with(extra).gram.diagonal().isfinite().nonzero().flatten().tolist() == [
                    *rest,
                    5,
                    6,
                ]
            else:
                assert not found.centred.gram.diagonal()[some].isfinite().any()


@pytest.mark.parametrize("asked", ["nothing", "centred", "gram", "squares"])
def test_lengths_are_the_rows_own_whatever_is_known(asked, draw):
    rows = torch.randn(5, 40, generator=draw, dtype=torch.float64) * torch.arange(1.0, 6)[:, None] + 2
    updates = Updates(rows)
    if asked != "nothing":
        getattr(updates, asked)
    torch.testing.assert_close(updates.lengths, rows.norm(dim=1))
