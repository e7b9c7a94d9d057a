"""Sorted columns, with one more value among them or not, against Python's own sort."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_fl import DivergedError, Updates
from lightning_fl.updates import ordered as module
from lightning_fl.updates.mixed import mix
from lightning_fl.updates.ordered import Ordered, ordered

INF = float("inf")
VALUES = st.sampled_from([-1e30, -2.0, -1.0, 0.0, 0.5, 1.0, 3.0, 1e30])


def slow(rows, pick):
    """Each column sorted by itself, in float64."""
    return torch.tensor([pick(sorted(column)) for column in rows.double().T.tolist()], dtype=torch.float64)


def nearest(values, trim, k):
    """The mean of the k values nearest to the trimmed mean, one after the other; of two equally near the smaller."""
    inner = values[trim : len(values) - trim]
    centre = sum(inner) / len(inner)
    return sum(sorted(values, key=lambda value: (abs(value - centre), value))[:k]) / k


def check(ordered, rows, tolerance=1e-6):
    n = len(rows)
    assert ordered.n == n
    close = {"rtol": tolerance, "atol": tolerance}
    for place in range(n):
        assert torch.equal(ordered.at(place, place).double(), slow(rows, lambda values, p=place: values[p]))
        expected = slow(rows, lambda values, p=place: (values[p] + values[-1]) / 2)
        torch.testing.assert_close(ordered.at(place, n - 1).double(), expected, **close)
        for last in range(place + 1, n + 1):
            expected = slow(rows, lambda values, p=place, q=last: sum(values[p:q]) / (q - p))
            torch.testing.assert_close(ordered.mean(place, last).double(), expected, **close)
    for trim in range((n + 1) // 2):
        for k in range(1, n + 1):
            expected = slow(rows, lambda values, t=trim, k=k: nearest(values, t, k))
            torch.testing.assert_close(ordered.nearest(trim, k).double(), expected, **close)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_agrees_with_sorting_each_column(n, dtype, draw):
    rows = torch.randn(n, 40, generator=draw, dtype=dtype)
    check(Ordered(rows), rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "copies"), [(1, 1), (2, 5), (5, 1), (5, 3), (6, 2)])
def test_copies_of_one_more_row_are_where_sorting_puts_them(n, copies, dtype, draw, monkeypatch):
    monkeypatch.setattr(module, "_ENTRIES_CPU", 50)
    rows = torch.randn(n, 40, generator=draw, dtype=dtype)
    others = Ordered(rows)
    for scale in [0.0, 0.3, 2.0, 1e6]:
        row = scale * torch.randn(40, generator=draw, dtype=dtype)
        row[:3], row[3:6] = rows[0, :3], rows[-1, 3:6]  # ties
        whole = torch.cat([rows, row.expand(copies, -1)])
        extended = others.extended(row, copies)
        check(extended, whole)
        assert torch.equal(extended.rows, whole)


@settings(max_examples=30, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=7), VALUES, st.integers(1, 4), st.data())
def test_ties_and_outliers(values, value, copies, data):
    """Means lose what 1e30 drowns, so the values themselves are compared, and means of the others."""
    rows = torch.tensor(values, dtype=torch.float64)[:, None]
    extended = Ordered(rows).extended(torch.tensor([value], dtype=torch.float64), copies)
    whole = sorted([*values, *[value] * copies])
    for place, expected in enumerate(whole):
        assert extended.at(place, place).item() == expected
    first = data.draw(st.integers(0, len(whole) - 1))
    last = data.draw(st.integers(first + 1, len(whole)))
    if max(map(abs, whole)) < 1e30:
        assert extended.mean(first, last).item() == pytest.approx(sum(whole[first:last]) / (last - first))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_types_are_kept(dtype, draw):
    rows = torch.randn(6, 30, generator=draw).to(dtype)
    extended = Ordered(rows).extended(rows[0] / 2, 3)
    whole = torch.cat([rows, (rows[0] / 2).expand(3, -1)])
    for found, expected in [
        (extended.at(4, 4), slow(whole, lambda values: values[4])),
        (extended.mean(2, 7), slow(whole, lambda values: sum(values[2:7]) / 5)),
        (extended.nearest(4, 6), slow(whole, lambda values: nearest(values, 4, 6))),
    ]:
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), expected, rtol=1e-2, atol=1e-2)


def test_rows_that_are_not_finite_are_left_out(draw):
    rows = torch.randn(5, 6, generator=draw)
    rows[1, 2], rows[3, 0] = INF, float("nan")
    check(ordered(Updates(rows), "rule"), rows[[0, 2, 4]])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mixed_rows_are_ordered_without_being_held(dtype, threads, draw, monkeypatch):
    """Products of small whole numbers are exact, however they are cut."""
    monkeypatch.setattr(module, "_ENTRIES_CPU", 50)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    rows = torch.randint(-9, 10, (7, 43), generator=draw).to(dtype)
    matrix = torch.randint(-3, 4, (5, 7), generator=draw).to(dtype)
    check(Ordered(rows, matrix=matrix), matrix @ rows)
    mixed = mix(Updates(rows), matrix.double())
    check(ordered(mixed, "rule"), matrix @ rows)
    assert "rows" not in vars(mixed)


def test_mixed_rows_that_are_not_finite_are_left_out(draw):
    rows = torch.randn(4, 30, generator=draw)
    rows[2, 3] = float("nan")
    matrix = torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.5, 0.0, 2.0], [0.0, 1.0, 1e-9, 0.0]])
    check(ordered(mix(Updates(rows), matrix), "rule"), (matrix[:, [0, 1, 3]] @ rows[[0, 1, 3]])[[0, 2]])
    with pytest.raises(DivergedError, match="rule needs at least one update without NaN and inf, got none among 1"):
        ordered(mix(Updates(rows), matrix[1:2]), "rule")
    rows[2], rows[3] = 0.0, 2e38  # sums that overflow
    check(ordered(mix(Updates(rows), matrix), "rule"), matrix[[0, 1, 3]] @ rows)
