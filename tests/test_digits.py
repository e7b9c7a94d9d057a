"""Inner products from float32 products, by themselves and in place of those in float64."""

import pytest
import torch

from lightning_fl import Updates, digits
from lightning_fl.aggregator.krum import multi_krum
from lightning_fl.digits import add_products, slow_in_float64
from lightning_fl.products import gram_matrix

NAN, INF = float("nan"), float("inf")


def lower(rows):
    """What is added to a sum of zeros, without what is above the diagonal."""
    gram = torch.zeros(len(rows), len(rows), dtype=torch.float64)
    add_products(gram, rows.double())
    return gram.tril()


def slow_gram(rows):
    """All inner products on and below the diagonal, one pair at a time."""
    return torch.tensor(
        [[float((a.double() * b.double()).sum()) for b in rows] for a in rows], dtype=torch.float64
    ).tril()


def slow_distances(rows):
    """All squared distances, one pair at a time."""
    rows = rows.double()
    return torch.tensor([[float((a - b).square().sum()) for b in rows] for a in rows], dtype=torch.float64)


@pytest.fixture
def slow_device(monkeypatch):
    """Let this processor pass for a device that is slow in float64."""
    monkeypatch.setattr(digits, "slow_in_float64", lambda device: True)


@pytest.mark.parametrize("d", [1, 255, 256, 257, 1000])
def test_of_integers_up_to_26_bits_every_product_is_exact(d, draw):
    """float32 alone is not: 1,000 products of such numbers need 62 bits."""
    rows = torch.randint(-(2**24), 2**24 + 1, (6, d), generator=draw)
    expected = [[sum(int(a) * int(b) for a, b in zip(x, y, strict=True)) for y in rows] for x in rows]
    assert lower(rows).tolist() == torch.tensor(expected).double().tril().tolist()


def test_rows_are_rounded_to_26_bits_below_their_largest_entry():
    """0.75 * 2^-26 becomes 2^-26, 0.4 * 2^-26 nothing; in a row of its own it keeps all its bits."""
    unit = 2.0**-26
    assert lower(torch.tensor([[1 - 2**-24, 0.75 * unit], [0.0, 1.0]]))[1, 0] == unit
    assert lower(torch.tensor([[1 - 2**-24, 0.4 * unit], [0.0, 1.0]]))[1, 0] == 0
    assert lower(torch.tensor([[0.0, 0.4 * unit], [0.0, 1.0]]))[1, 0] == float(torch.tensor(0.4 * unit))


@pytest.mark.parametrize("sums", [1, 10**5, 2**26])
def test_neither_parts_nor_their_size_change_a_bit(sums, draw, monkeypatch):
    rows = torch.randn(300, 1000, generator=draw)
    expected = lower(rows)
    torch.testing.assert_close(expected, slow_gram(rows), rtol=1e-6, atol=1e-5)
    monkeypatch.setattr(digits, "_SUMS", sums)
    monkeypatch.setattr(digits, "_ROWS", 7)
    assert torch.equal(lower(rows), expected)


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_row_that_is_not_finite_spoils_its_own_products_only(bad, draw):
    rows = torch.randn(5, 300, generator=draw)
    rows[2, 299] = bad
    fine = [0, 1, 3, 4]
    found = gram_of(rows)
    assert not found[2].isfinite().any()
    assert torch.equal(found[fine][:, fine], gram_of(rows[fine]))


def gram_of(rows):
    gram = lower(rows)
    return gram + gram.tril(-1).T


def test_scales_are_kept_apart_without_overflow():
    rows = torch.tensor([[3e38, 0.0], [1e30, 1e30], [1e-6, -1e-6], [0.0, 0.0], [1e-44, 0.0]])
    torch.testing.assert_close(lower(rows), slow_gram(rows), rtol=1e-7, atol=0)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6, 1e7])
@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("d", [1, 64, 4161])
def test_distances_obey_the_same_law(d, offset, hostile, draw, slow_device):
    """At any offset, beside rows of 1e30 and of NaN."""
    rows = torch.randn(25, d, generator=draw) + (offset * torch.randn(d, generator=draw)).round()
    fine = list(range(25))
    if hostile:
        rows[3:10] = 1e30
        rows[3:6] *= -1
        rows[12, d // 2] = NAN
        fine = [i for i in fine if not 3 <= i < 10 and i != 12]
    distances = Updates(rows).distances
    expected = slow_distances(rows[fine])
    torch.testing.assert_close(distances[fine][:, fine], expected, rtol=1e-5, atol=1e-9)
    assert (distances.diagonal() == 0).all()
    if hostile:
        assert (distances[12, fine] == INF).all()
        torch.testing.assert_close(distances[3, 8].item(), 4e60 * d, rtol=1e-6, atol=0)


@pytest.mark.parametrize("apart", [1e2, 1e4])
def test_distances_inside_a_group_far_from_the_middle_keep_their_digits(apart, draw, slow_device):
    """Plain float32 products have none left: 1 - 2 + 1 times the square of 1e4 to seven digits."""
    rows = torch.randn(20, 2000, generator=draw)
    rows[12:] += apart * torch.randn(2000, generator=draw)
    torch.testing.assert_close(Updates(rows).distances[12:, 12:], slow_distances(rows[12:]), rtol=1e-4, atol=0)


def test_equal_rows_are_one(draw, slow_device):
    rows = 1e3 + torch.randn(9, 700, generator=draw)
    rows[5], rows[7] = rows[2], rows[2]
    centred = Updates(rows).centred
    assert torch.equal(centred.gram[5], centred.gram[2])
    assert Updates(rows).distances[2, [5, 7]].tolist() == [0, 0]


def test_a_rule_answers_the_same(draw, slow_device, monkeypatch):
    rows = 1e3 + torch.randn(20, 300, generator=draw)
    rows[15:] = 1e30
    found = multi_krum(rows, 5)
    monkeypatch.undo()
    assert torch.equal(found, multi_krum(rows, 5))


def test_rows_of_float64_stay_in_float64(draw, slow_device):
    rows = torch.randn(4, 50, generator=draw, dtype=torch.float64)
    expected = slow_gram(rows)
    torch.testing.assert_close(gram_matrix(rows).tril(), expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(
    ("capability", "slow"), [((8, 6), True), ((8, 9), True), ((12, 0), True), ((8, 0), False), ((9, 0), False)]
)
def test_consumer_gpus_are_slow(capability, slow, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.version, "hip", None, raising=False)
    slow_in_float64.cache_clear()
    assert slow_in_float64(torch.device("cuda", 3)) is slow
    assert not slow_in_float64(torch.device("cpu"))
    slow_in_float64.cache_clear()
