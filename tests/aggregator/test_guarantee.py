"""Where the rules say that their guarantees end."""

import pytest

from lightning_fl import Federation
from lightning_fl.aggregator.arc import Arc
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.bucketing import Bucketing, Resampling
from lightning_fl.aggregator.cge import Cge
from lightning_fl.aggregator.ctma import Ctma
from lightning_fl.aggregator.dnc import Dnc
from lightning_fl.aggregator.fltrust import Fltrust
from lightning_fl.aggregator.gas import Gas
from lightning_fl.aggregator.geometric_median import GeometricMedian
from lightning_fl.aggregator.guarantee import not_guaranteed
from lightning_fl.aggregator.krum import Krum, MultiKrum
from lightning_fl.aggregator.median import Median
from lightning_fl.aggregator.nnm import Nnm
from lightning_fl.aggregator.trimmed_mean import TrimmedMean
from lightning_fl.contract import conf, world


def test_guarantees_end_where_the_bounds_do():
    """The sentence that a run shows; n and f are those that the rule itself sees."""
    krum = "no guarantee: needs n >= 2f + 3, has 7 updates for f = 3"
    expected = {
        ("krum", 7, 3): krum,
        ("krum", 9, 3): None,
        ("multi_krum", 7, 3): krum,
        ("bucketing_krum", 15, 3): krum.replace("updates", "buckets"),
        ("bucketing_krum", 17, 3): "no guarantee: needs n >= 2f + 3, has 8 buckets for f = 3",
        ("bucketing_krum", 18, 3): None,
        ("resampling", 18, 3): "no guarantee: f = 3 spoils 6 buckets, the rule tolerates f = 3",
        ("arc_nnm_krum", 7, 3): krum,
        ("boba", 8, 3): "no guarantee: needs n >= 2f + c, has 8 updates for f = 3 and c = 3",
        ("boba", 9, 3): None,
        ("average", 3, 3): None,
        ("trimmed_mean", 7, 3): None,
    }
    for (name, n, f), text in expected.items():
        assert conf.make("aggregator", name, f=f).guarantee(n, world.CLASSES) == text


@pytest.mark.parametrize(
    ("rule", "n", "text"),
    [
        (Cge(2), 5, None),
        (Cge(2), 4, "needs n >= 2f + 1, has 4 updates for f = 2"),
        (Ctma(GeometricMedian(), 2), 9, None),
        (Ctma(TrimmedMean(1), 2), 9, "asks for f = 2, the rule tolerates f = 1"),
        (Dnc(1), 11, None),
        (Dnc(5), 11, "beside one large update a smaller one may pass"),
        (Dnc(6), 11, "needs n >= 2f + 1, has 11 updates for f = 6"),
        (Dnc(3, 0.5), 11, "drops 1 updates per iteration for f = 3"),
        (Krum(3), 9, None),
        (Krum(3), 8, "needs n >= 2f + 3, has 8 updates for f = 3"),
        (Krum(3, "n-f-1"), 7, None),
        (Krum(3, "n-f-1"), 6, "needs n >= 2f + 1, has 6 updates for f = 3"),
        (MultiKrum(3, None), 9, None),
        (MultiKrum(3, 6), 9, None),
        (MultiKrum(3, 7), 9, "needs m <= n - f, has 9 updates for f = 3 and m = 7"),
        (Resampling(Krum(2), f=1, s=2), 7, None),
        (Resampling(Krum(2), f=1, s=2), 6, "needs n >= 2f + 3, has 6 buckets for f = 2"),
    ],
)
def test_a_guarantee_ends_where_a_setting_says(rule, n, text):
    rule.check(n, 3)
    assert rule.guarantee(n, 3) == (text and f"no guarantee: {text}")


def test_mixing_guarantees_nothing_beyond_half_or_for_more_than_the_rule():
    assert Nnm(Median(), 6).guarantee(13, 3) is None
    assert Nnm(Median(), 8).guarantee(16, 3) == "no guarantee: needs n >= 2f + 1, has 16 updates for f = 8"
    for mixing in [Nnm, Arc]:
        assert mixing(Krum(5), 5).guarantee(13, 3) is None
        for inner in [Krum(1), Bucketing(Krum(1), 1)]:
            text = "no guarantee: asks for f = 5, the rule tolerates f = 1"
            assert mixing(inner, 5).guarantee(13, 3) == text
    assert Gas(Krum(5), 5, 10).guarantee(13, 3) is None
    assert Gas(Krum(1), 5, 10).guarantee(13, 3) == "no guarantee: asks for f = 5, the rule tolerates f = 1"
    inner = Bucketing(Krum(5), 1)
    assert Resampling(inner, 3, 2).guarantee(13, 3) == "no guarantee: f = 3 spoils 6 buckets, the rule tolerates f = 5"


def test_more_attackers_than_the_rule_tolerates_are_told():
    found = not_guaranteed(Nnm(Median(), 1), Federation(8, 2), 3)
    assert found == "no guarantee: 2 clients attack, the rule tolerates f = 1"
    assert not_guaranteed(Nnm(Median(), 2), Federation(8, 2), 3) is None


@pytest.mark.parametrize(
    ("rule", "b", "spoilt"),
    [
        (Bucketing(Median(), 2), 3, "3 of 5 rows that Median sees"),
        (Bucketing(Median(), 2), 2, None),
        (Resampling(Median(), 3, 2), 3, "6 of 10 rows that Median sees"),
        (Resampling(GeometricMedian(), 2, 2), 2, None),
        (Bucketing(Bucketing(Median(), 2), 2), 1, "1 of 2 rows that Median sees"),
    ],
)
def test_half_of_the_buckets_are_too_many(rule, b, spoilt):
    found = not_guaranteed(rule, Federation(10, b, "replacement"), 3)
    who = f"{b} client{'s' if b > 1 else ''} attack{'' if b > 1 else 's'}"
    assert found == (spoilt and f"no guarantee: {who}, of 10, and may spoil {spoilt}")


@pytest.mark.parametrize(
    ("honest", "rule", "told"), [(2, Median(), True), (3, Median(), False), (3, Krum(2), False), (2, Fltrust(), False)]
)
def test_half_of_the_clients_are_more_than_any_rule_tolerates_without_samples(honest, rule, told):
    expected = "no guarantee: 2 clients attack, of 4" if told else rule.guarantee(honest + 2, 3)
    assert not_guaranteed(rule, Federation(honest, 2), 3) == expected


def test_what_a_rule_of_ones_own_calls_f_may_be_anything():
    class Own(Average):
        f = "auto"

    assert not_guaranteed(Own(), Federation(8, 2), 3) is None
