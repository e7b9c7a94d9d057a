"""How far a round's update was from the honest mean."""

from math import inf

import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.metric.robustness import measured_kappa
from lightning_fl.updates.deviation import quick_deviation
from lightning_fl.updates.rows import mean_and_squares
from lightning_fl.updates.updates import Updates


def slow_kappa(rows, update, h):
    """The equation, entry by entry."""
    honest, d = rows[:h], len(update)
    mean = [sum(row[k] for row in honest) / h for k in range(d)]
    error = sum((update[k] - mean[k]) ** 2 for k in range(d))
    return error / (sum((row[k] - mean[k]) ** 2 for row in honest for k in range(d)) / h)


def kappa(how, rows, update, h):
    """Measured after a rule has asked for inner products, or the attack for the honest rows' moments, or nobody."""
    updates, honest = Updates(rows), Updates(rows[:h])
    if how in {"centred", "gram"}:
        getattr(updates, how)
    quick = quick_deviation(updates, update, h, honest.moments).tolist() if how == "moments" else None
    return measured_kappa(updates, update, h, quick)


HOW = pytest.mark.parametrize("how", [None, "centred", "gram", "moments"])


@HOW
def test_by_hand(how):
    # Mean (1, 2), squared distances from it 1 + 4, 1 + 4 and 0: variance 10/3.  (4, 6) is 9 + 16 = 25 away: 7.5.
    rows = torch.tensor([[0.0, 0.0], [2.0, 4.0], [1.0, 2.0], [50.0, -7.0]])
    assert kappa(how, rows, torch.tensor([4.0, 6.0]), 3) == pytest.approx(7.5, rel=1e-6)


@HOW
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_agrees_with_the_loop(how, offset):
    draw = torch.Generator().manual_seed(3)
    rows = torch.randn(7, 9000, generator=draw) + offset
    update = rows[:5].mean(0) + 0.5 * torch.randn(9000, generator=draw)
    expected = slow_kappa(rows.double().tolist(), update.double().tolist(), 5)
    assert kappa(how, rows, update, 5) == pytest.approx(expected, rel=1e-4)


@HOW
def test_close_rows_far_from_zero(how):
    rows = 1000 + torch.tensor([[0.0, 0.0], [2.0, 0.0], [1.0, 1e6]]) * 2.0**-6
    update = 1000 + torch.tensor([2.0, 0.0]) * 2.0**-6
    assert kappa(how, rows, update, 2) == pytest.approx(1.0, rel=1e-6)


@HOW
@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e30])
def test_byzantine_rows_play_no_part(how, value):
    rows = torch.tensor([[0.0], [2.0], [value]])
    assert kappa(how, rows, torch.tensor([2.0]), 2) == 1


@HOW
def test_honest_rows_that_are_not_finite_are_left_out(how):
    rows = torch.tensor([[0.0, 1.0], [torch.nan, 1.0], [2.0, 1.0]])
    assert kappa(how, rows, torch.tensor([3.0, 1.0]), 3) == 4
    assert kappa(how, rows[1:2], torch.tensor([3.0, 1.0]), 1) == inf


@HOW
@pytest.mark.parametrize(("value", "expected"), [(3.3, 0), (3.300001, 0), (3.4, inf)])
def test_equal_honest_rows(how, value, expected):
    rows = torch.tensor([[3.3], [3.3], [3.3], [100.0]])
    assert kappa(how, rows, torch.tensor([value]), 3) == expected


@HOW
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [2.0**-90, 2.0**-71, 2.0**-60, 1.0, 2.0**70])
@pytest.mark.parametrize("offset", [0.0, 1e2, 1e4, 1e6])
def test_is_right_at_any_scale_and_offset(how, offset, scale, dtype):
    """Squares of float32 numbers vanish below 1e-23 and overflow above 1e19; beside 1e6 rounding is 0.1."""
    draw = torch.Generator().manual_seed(5)
    rows = ((torch.randn(9, 300, generator=draw) + offset) * scale).to(dtype)
    rows[7:] = 1e30
    update = rows[:7].mean(0) + (0.5 * scale * torch.randn(300, generator=draw)).to(dtype)
    expected = slow_kappa(rows.double().tolist(), update.double().tolist(), 7)
    assert kappa(how, rows, update, 7) == pytest.approx(expected, rel=1e-5)


@HOW
def test_rows_of_zeros(how):
    rows = torch.zeros(3, 2)
    assert kappa(how, rows, torch.zeros(2), 2) == 0
    assert kappa(how, rows, torch.ones(2), 2) == inf


def test_an_update_that_overflows_is_infinitely_far():
    rows = torch.tensor([[0.0], [1e-3]])
    assert measured_kappa(Updates(rows.double()), torch.tensor([1e200]).double(), 2) == inf


@pytest.mark.parametrize("h", [0, 3])
def test_refuses_as_many_honest_rows(h):
    with pytest.raises(SettingError, match="needs 1 <= h <= n honest rows, got"):
        measured_kappa(Updates(torch.zeros(2, 1)), torch.zeros(1), h)


def test_asks_nothing_again_that_the_attack_has_asked(draw, monkeypatch):
    rows, read = torch.randn(6, 40, generator=draw), []
    for asker in ["updates", "deviation"]:
        monkeypatch.setattr(
            f"lightning_fl.updates.{asker}.mean_and_squares", lambda x: read.append(len(x)) or mean_and_squares(x)
        )
    honest = Updates(rows[:4])
    honest.mean_and_std  # noqa: B018
    expected = slow_kappa(rows.tolist(), rows[5].tolist(), 4)
    quick = quick_deviation(Updates(rows), rows[5], 4, honest.known_moments).tolist()
    assert measured_kappa(Updates(rows), rows[5], 4, quick) == pytest.approx(expected, rel=1e-5)
    assert read == [4]
    assert measured_kappa(Updates(rows), rows[5], 4) == pytest.approx(expected, rel=1e-5)
    assert read == [4, 4]
