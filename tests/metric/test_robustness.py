"""How far a round's update was from the honest mean."""

from math import inf

import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.metric.robustness import measured_kappa
from lightning_fl.updates import Updates


def slow_kappa(rows, update, h):
    """The equation, entry by entry."""
    honest, d = rows[:h], len(update)
    mean = [sum(row[k] for row in honest) / h for k in range(d)]
    error = sum((update[k] - mean[k]) ** 2 for k in range(d))
    return error / (sum((row[k] - mean[k]) ** 2 for row in honest for k in range(d)) / h)


def asked(how):
    """Whether the rule has asked for inner products before, and which."""

    def prepare(rows):
        updates = Updates(rows)
        if how:
            getattr(updates, how)
        return updates

    return prepare


HOW = pytest.mark.parametrize("prepare", list(map(asked, [None, "centred", "gram"])), ids=["pass", "centred", "gram"])


@HOW
def test_by_hand(prepare):
    # Mean (1, 2), squared distances from it 1 + 4, 1 + 4 and 0: variance 10/3.  (4, 6) is 9 + 16 = 25 away: 7.5.
    rows = torch.tensor([[0.0, 0.0], [2.0, 4.0], [1.0, 2.0], [50.0, -7.0]])
    assert measured_kappa(prepare(rows), torch.tensor([4.0, 6.0]), 3) == pytest.approx(7.5, rel=1e-6)


@HOW
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_agrees_with_the_loop(prepare, offset):
    draw = torch.Generator().manual_seed(3)
    rows = torch.randn(7, 9000, generator=draw) + offset
    update = rows[:5].mean(0) + 0.5 * torch.randn(9000, generator=draw)
    expected = slow_kappa(rows.double().tolist(), update.double().tolist(), 5)
    assert measured_kappa(prepare(rows), update, 5) == pytest.approx(expected, rel=1e-4)


@HOW
def test_close_rows_far_from_zero(prepare):
    rows = 1000 + torch.tensor([[0.0, 0.0], [2.0, 0.0], [1.0, 1e6]]) * 2.0**-6
    update = 1000 + torch.tensor([2.0, 0.0]) * 2.0**-6
    assert measured_kappa(prepare(rows), update, 2) == pytest.approx(1.0, rel=1e-6)


@HOW
@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e30])
def test_byzantine_rows_play_no_part(prepare, value):
    rows = torch.tensor([[0.0], [2.0], [value]])
    assert measured_kappa(prepare(rows), torch.tensor([2.0]), 2) == 1


@HOW
def test_honest_rows_that_are_not_finite_are_left_out(prepare):
    rows = torch.tensor([[0.0, 1.0], [torch.nan, 1.0], [2.0, 1.0]])
    assert measured_kappa(prepare(rows), torch.tensor([3.0, 1.0]), 3) == 4
    assert measured_kappa(prepare(rows[1:2]), torch.tensor([3.0, 1.0]), 1) == inf


@HOW
@pytest.mark.parametrize(("value", "expected"), [(3.3, 0), (3.300001, 0), (3.4, inf)])
def test_equal_honest_rows(prepare, value, expected):
    rows = torch.tensor([[3.3], [3.3], [3.3], [100.0]])
    assert measured_kappa(prepare(rows), torch.tensor([value]), 3) == expected


@HOW
def test_rows_of_zeros(prepare):
    rows = torch.zeros(3, 2)
    assert measured_kappa(prepare(rows), torch.zeros(2), 2) == 0
    assert measured_kappa(prepare(rows), torch.ones(2), 2) == inf


def test_an_update_that_overflows_is_infinitely_far():
    rows = torch.tensor([[0.0], [1e-3]])
    assert measured_kappa(Updates(rows.double()), torch.tensor([1e200]).double(), 2) == inf


@pytest.mark.parametrize("h", [0, 3])
def test_refuses_as_many_honest_rows(h):
    with pytest.raises(SettingError, match="needs 1 <= h <= n honest rows, got"):
        measured_kappa(Updates(torch.zeros(2, 1)), torch.zeros(1), h)
