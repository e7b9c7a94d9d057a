"""Inner products and distances between rows, at any scale and offset."""

import pytest
import torch

from lightning_fl import Updates
from lightning_fl.updates import products
from lightning_fl.updates.combinations import inner, with_row
from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.products import (
    _COLUMNS_CPU,
    centred_products,
    equal_rows,
    float64_columns,
    gram_matrix,
    merged,
    squared_distances,
)
from lightning_fl.updates.threads import in_threads
from tests.slow import OFFSETS, shifted, slow_distances, slow_gram

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d", [1, 5, _COLUMNS_CPU - 1, _COLUMNS_CPU, _COLUMNS_CPU + 1, 20_000])
def test_gram_matrix_is_all_inner_products(d, dtype, draw):
    rows = torch.randn(7, d, generator=draw, dtype=dtype)
    gram = gram_matrix(rows)
    assert gram.dtype == torch.float64
    torch.testing.assert_close(gram, slow_gram(rows), rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("beyond", [-1, 0, 1])
@pytest.mark.parametrize(("n", "width"), [(2, 262_144), (7, 73_728), (64, 8192), (65, 4096), (115, 4096)])
def test_few_rows_are_taken_more_columns_at_a_time(n, width, beyond, draw):
    rows = torch.randn(n, width + beyond, generator=draw)
    assert next(float64_columns(rows)).shape == (n, width + min(beyond, 0))
    expected = rows.double() @ rows.double().T
    torch.testing.assert_close(gram_matrix(rows), expected, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize(("n", "d"), [(5, 7), (33, 1000), (64, 8193)])
def test_gram_matrix_is_exactly_symmetric(n, d, draw):
    gram = gram_matrix(torch.randn(n, d, generator=draw))
    assert torch.equal(gram, gram.T)


@pytest.mark.parametrize("n", [130, 600])
def test_many_rows_in_larger_parts_give_the_same(n, draw, monkeypatch):
    rows = 100 + torch.randn(n, 50, generator=draw)
    rows[7], rows[n - 1, 3], rows[40] = rows[20], NAN, 1e20
    whole = Updates(rows)
    expected = [whole.gram, whole.centred.gram, whole.distances, equal_rows(whole.gram, whole.squares)]
    monkeypatch.setattr("lightning_fl.updates.products._PARTS", 3)
    monkeypatch.setattr("lightning_fl.updates.products._PART", 7 * n)
    parts = Updates(rows)
    found = [parts.gram, parts.centred.gram, parts.distances, equal_rows(parts.gram, parts.squares)]
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-9, equal_nan=True)
    assert found[3][20] == 7
    torch.testing.assert_close(found[0][:9, :9], slow_gram(rows[:9]), rtol=1e-12, atol=1e-9)


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


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("d", [1, 63, 64, _COLUMNS_CPU + 65])
def test_distances_are_exact_at_any_offset(d, offset, hostile, draw):
    rows, fine = shifted(25, d, offset, draw, hostile)
    distances = Updates(rows).distances
    assert distances.dtype == torch.float64
    assert (distances.diagonal() == 0).all()
    torch.testing.assert_close(distances[fine][:, fine], slow_distances(rows[fine]), rtol=1e-12, atol=1e-12)
    if hostile:
        assert (distances[12, [i for i in range(25) if i != 12]] == INF).all()
        huge = 4e60 * d
        torch.testing.assert_close(distances[3, 8], torch.tensor(huge, dtype=torch.float64), rtol=1e-12, atol=0)


@pytest.mark.parametrize("k", [0, 77, _COLUMNS_CPU - 1, _COLUMNS_CPU + 99])
def test_rows_that_are_huge_in_one_coordinate_do_not_become_the_origin(k, draw):
    """They are otherwise the mean of the others, nearer to all of them than any of these."""
    rows, _ = shifted(25, _COLUMNS_CPU + 100, 1e6, draw)
    rows[14:] = rows[:14].mean(0)
    rows[14:, k] += 1e30
    torch.testing.assert_close(Updates(rows).distances[:14, :14], slow_distances(rows[:14]), rtol=1e-12, atol=0)


def test_distances_of_float32_rows_do_not_round_to_float32(draw):
    rows = 1000 + 0.001 * torch.randn(40, 500, generator=draw)
    torch.testing.assert_close(Updates(rows).distances, slow_distances(rows.double()), rtol=1e-12, atol=0)


def test_rows_that_differ_by_rounding_are_one(draw):
    """Inner products, not only distances: every rule sees the tie, and the first row counts."""
    rows, _ = shifted(9, 700, 1e3, draw)
    rows[5], rows[7] = rows[2], rows[2] * (1 + 2**-52)
    updates = Updates(rows)
    assert updates.distances[2, [5, 7]].tolist() == [0, 0]
    assert torch.equal(updates.centred.gram[5], updates.centred.gram[2])
    assert equal_rows(updates.centred.gram, updates.centred.scale).tolist() == [0, 1, 2, 3, 4, 2, 6, 2, 8]
    gram = torch.tensor([[INF, NAN, INF], [NAN, NAN, NAN], [INF, NAN, 1.0]]).double()
    assert equal_rows(gram, gram.diagonal()).tolist() == [0, 1, 2]


def test_what_is_rounding_ends_at_2_to_the_minus_43():
    """Of the squared length: 2^-44 is, 2^-40 is not."""
    gram = gram_matrix(torch.tensor([[1.0], [1 + 2**-20], [1 + 2**-22]]).double())
    assert equal_rows(gram, gram.diagonal()).tolist() == [0, 1, 0]


@pytest.mark.parametrize("first", [[0, 1, 2, 3, 4], [0, 0, 2, 1, 2], [1, 1, 0, 3, 3], [4, 4, 4, 4, 4]])
@pytest.mark.parametrize("in_place", [False, True])
def test_merged_rows_and_columns_are_those_of_the_given_numbers(first, in_place, draw):
    gram = slow_gram(torch.randn(5, 9, generator=draw))
    kept = gram.clone()
    expected = [[kept[i, j].item() for j in first] for i in first]
    found = merged(gram, torch.tensor(first), in_place)
    assert found.tolist() == expected
    assert merged(found, torch.tensor(first)).tolist() == [[expected[i][j] for j in first] for i in first]
    assert in_place or torch.equal(gram, kept)


def test_what_is_merged_already_is_not_copied(draw):
    rows = torch.randn(5, 9, generator=draw)[[0, 1, 0, 3, 1]]
    gram, first = Updates(rows).centred.gram, torch.tensor([0, 1, 0, 3, 1])
    assert merged(gram, first) is gram


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("offset", OFFSETS)
def test_the_way_back_from_the_centred_products_leads_to_the_gram_matrix(offset, hostile, draw):
    rows, fine = shifted(25, 5000, offset, draw, hostile)
    centred = centred_products(rows)
    assert torch.equal(centred.gram[fine][:, fine], centred.gram[fine][:, fine].T)
    gram = centred.gram + centred.offset[:, None] + centred.offset + centred.square
    expected = slow_gram(rows[fine])
    torch.testing.assert_close(gram[fine][:, fine], expected, rtol=1e-11, atol=1e-13 * float(expected.max()))


@pytest.mark.parametrize("bad", [NAN, INF])
def test_a_combination_has_no_inner_product_where_a_row_with_part_in_it_is_not_finite(bad, draw):
    rows = torch.randn(4, 30, generator=draw)
    rows[2, 7] = bad
    centred, fine = Updates(rows).centred, torch.tensor([1.0, -2.0, 0.0, 1.0]).double()
    exact = fine[[0, 1, 3]] @ rows[[0, 1, 3]].double()
    assert inner(centred, fine, fine).item() == pytest.approx(exact.square().sum().item(), rel=1e-9)
    assert inner(centred, fine, torch.ones(4).double()).isnan()


@pytest.mark.parametrize("by_numpy", [True, False])
@pytest.mark.parametrize("n", [7, 70, 530])
def test_either_library_gives_all_inner_products(n, by_numpy, monkeypatch):
    monkeypatch.setattr(products, "numpy_multiplies", lambda: by_numpy)
    rows = torch.randn(n, 5, generator=torch.Generator().manual_seed(n))
    rows[1, 2] = torch.inf
    expected = (rows[:, None].double() * rows.double()).sum(2)
    torch.testing.assert_close(products.gram_matrix(rows), expected, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_two_threads_share_the_columns(monkeypatch, draw):
    monkeypatch.setattr(products, "numpy_multiplies", lambda: True)
    monkeypatch.setattr(products, "_SHARE", 30)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    shares = []
    monkeypatch.setattr(products, "in_threads", lambda work, items: shares.extend(items) or in_threads(work, items))
    rows, server = 1e4 + torch.randn(6, 61, generator=draw, dtype=torch.float64), torch.zeros(1, 61).double()
    found = centred_products(rows, server)
    assert [len(first[0]) for first, _ in shares] == [31, 30]
    both = [*rows, *server]
    slow = torch.tensor([[float((x - y).square().sum()) for y in both] for x in both])
    torch.testing.assert_close(squared_distances(found.gram).float(), slow, rtol=1e-6, atol=0.0)
    lengths = found.gram.diagonal() + 2 * found.offset + found.square
    torch.testing.assert_close(lengths[:6], rows.square().sum(1), rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_a_further_row_is_what_its_numbers_say(offset, draw):
    rows = offset + torch.randn(6, 50, generator=draw, dtype=torch.float64)
    weights = torch.tensor([0.5, 0.0, -2.0, 0.0, 0.25, 0.0]).double()
    rows[3] = torch.nan  # without part in it
    found = with_row(centred_products(rows), weights)
    expected = torch.cat([rows, (0.5 * rows[0] - 2 * rows[2] + 0.25 * rows[4])[None]])
    kept = [0, 1, 2, 4, 5, 6]
    distances = squared_distances(found.gram[kept][:, kept])
    slow = torch.tensor([[float((expected[i] - expected[j]).square().sum()) for j in kept] for i in kept])
    torch.testing.assert_close(distances.to(slow), slow, rtol=1e-5, atol=1e-8 * (1 + offset**2) * 1e-6)
    lengths = found.gram.diagonal() + 2 * found.offset + found.square
    torch.testing.assert_close(lengths[kept], expected[kept].square().sum(1), rtol=1e-12, atol=0.0)
    assert not found.gram[3].isfinite().any()


def test_a_further_row_that_is_near_another_becomes_that(draw):
    rows = 1e3 + torch.randn(5, 40, generator=draw, dtype=torch.float64)
    found = with_row(centred_products(rows), torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0]).double())
    assert torch.equal(found.gram[5], found.gram[2])
    assert squared_distances(found.gram)[5, 2] == 0
