"""Robustness coefficients, and which rule offers which."""

import pytest

from lightning_fl import SettingError
from lightning_fl.aggregator.arc import Arc
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.geometric_median import GeometricMedian
from lightning_fl.aggregator.krum import Krum, MultiKrum
from lightning_fl.aggregator.median import Median
from lightning_fl.aggregator.nnm import Nnm
from lightning_fl.aggregator.trimmed_mean import TrimmedMean
from lightning_fl.theory.robustness import krum_kappa, least_kappa, median_kappa, mixed_kappa, trimmed_mean_kappa


# n = 7, f = 2: r = 2/3, 1 + r = 5/3.
@pytest.mark.parametrize(
    ("bound", "expected", "mixed"),
    [
        (trimmed_mean_kappa, 20 / 3, 368 / 15),  # 16/5 (20/3 + 1)
        (krum_kappa, 10, 176 / 5),
        (median_kappa, 100 / 9, 1744 / 45),
        (least_kappa, 2 / 3, 16 / 3),
    ],
)
def test_by_hand(bound, expected, mixed):
    assert bound(7, 2).value == pytest.approx(expected)
    assert mixed_kappa(7, 2, bound(7, 2).value).value == pytest.approx(mixed)


@pytest.mark.parametrize("told", [0, 1, 2, 4])
def test_a_rule_told_another_f_is_as_far_as_the_rows_that_it_gives_up(told):
    """n = 7, f = 2: ``told`` of the five honest rows are at 1, the others and the Byzantine ones at 0."""
    honest = [1.0] * told + [0.0] * (5 - told)
    variance = sum((x - told / 5) ** 2 for x in honest) / 5
    assert least_kappa(7, 2, told).value == pytest.approx((told / 5) ** 2 / variance if told else 0)
    assert least_kappa(7, 2, 2).value == least_kappa(7, 2).value
    assert str(least_kappa(7, 2, 5)) == "not guaranteed: needs n > f + told, got n=7, f=2 and told=5"
    with pytest.raises(SettingError, match="finite told >= 0, got -1"):
        least_kappa(7, 2, -1)


def test_without_byzantine_rows():
    values = [bound(5, 0).value for bound in (trimmed_mean_kappa, krum_kappa, median_kappa, least_kappa)]
    assert [*values, mixed_kappa(5, 0, 6.0).value] == [0, 6, 4, 0, 0]


def test_half_of_the_rows_are_too_many():
    for bound in (trimmed_mean_kappa, krum_kappa, median_kappa, least_kappa):
        assert str(bound(6, 3)) == "not guaranteed: needs n > 2f, got n=6 and f=3"
    assert mixed_kappa(6, 3, 1.0).value is None


@pytest.mark.parametrize(("n", "f"), [(0, 0), (5, -1)])
def test_refuses(n, f):
    with pytest.raises(SettingError, match="needs n >= 1 and f >= 0, got"):
        least_kappa(n, f)
    with pytest.raises(SettingError, match="finite kappa >= 0"):
        mixed_kappa(5, 1, -1.0)


@pytest.mark.parametrize(
    ("rule", "b", "expected"),
    [
        (TrimmedMean(f=2), 2, 20 / 3),
        (TrimmedMean(f=2), 1, 20 / 3),
        (TrimmedMean(f=1), 2, None),
        (Krum(f=2, neighbours="n-f-1"), 2, 10),
        (Krum(f=2, neighbours="n-f-2"), 2, None),
        (Krum(f=1, neighbours="n-f-1"), 2, None),
        (MultiKrum(f=2, neighbours="n-f-1"), 2, None),
        (Median(middle="upper"), 2, 100 / 9),
        (Median(middle="upper"), 4, None),
        (GeometricMedian(eps=1e-5), 2, 100 / 9),
        (Nnm(TrimmedMean(f=2), f=2), 2, 368 / 15),
        (Nnm(TrimmedMean(f=2), f=2), 0, 368 / 15),
        (Nnm(TrimmedMean(f=2), f=2), 3, None),
        (Nnm(TrimmedMean(f=1), f=2), 1, None),
        (Nnm(GeometricMedian(eps=1e-5), f=2), 1, 1744 / 45),
        (Nnm(Average(), f=2), 2, None),
        (Arc(TrimmedMean(f=2), f=2), 2, None),
        (Average(), 0, None),
    ],
)
def test_what_a_rule_offers_for_seven_rows(rule, b, expected):
    assert rule.kappa(7, b, True) == (None if expected is None else pytest.approx(expected))


def test_unequal_weights_leave_the_geometric_median_without_a_bound():
    assert GeometricMedian(eps=1e-5).kappa(7, 2, False) is None
    assert Nnm(GeometricMedian(eps=1e-5), f=2).kappa(7, 2, False) == pytest.approx(1744 / 45)
    assert Median(middle="lower").kappa(7, 2, False) == pytest.approx(100 / 9)
