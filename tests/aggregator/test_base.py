"""A rule called on a plain matrix."""

from math import inf

import pytest
import torch

from lightning_fl import DivergedError, SettingError
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.boba import Boba
from lightning_fl.aggregator.bucketing import Bucketing, Resampling
from lightning_fl.aggregator.bygars import Bygars
from lightning_fl.aggregator.centred_clipping import CentredClipping, SequentialCentredClipping
from lightning_fl.aggregator.clipped_clustering import ClippedClustering
from lightning_fl.aggregator.clipped_sum import ClippedSum
from lightning_fl.aggregator.clipping import Clipping
from lightning_fl.aggregator.correntropy import Correntropy
from lightning_fl.aggregator.dnc import Dnc
from lightning_fl.aggregator.flame import Flame
from lightning_fl.aggregator.fltrust import Fltrust
from lightning_fl.aggregator.foolsgold import Foolsgold
from lightning_fl.aggregator.gas import Gas
from lightning_fl.aggregator.geometric_median import GeometricMedian
from lightning_fl.aggregator.krum import Krum, MultiKrum
from lightning_fl.aggregator.median import Median
from lightning_fl.aggregator.monna import Monna
from lightning_fl.aggregator.nnm import Nnm
from lightning_fl.aggregator.normalized import Normalized
from lightning_fl.aggregator.rage import Rage
from lightning_fl.aggregator.rejection import SelfRejection, Zeno
from lightning_fl.aggregator.rfa import Rfa
from lightning_fl.aggregator.rlr import Rlr
from lightning_fl.aggregator.server_mixture import ServerMixture
from lightning_fl.aggregator.server_only import ServerOnly
from lightning_fl.aggregator.signguard import Signguard
from lightning_fl.aggregator.trimmed_mean import TrimmedMean
from lightning_fl.contract import conf, world

X = torch.tensor([[0.0], [1.0], [2.0], [5.0], [54.0]])


def test_f_is_checked_against_n_first():
    with pytest.raises(SettingError, match=r"krum needs f >= 0 and n >= f \+ 3 updates.* n=5 and f=3; change f"):
        Krum(f=3)(X)


@pytest.mark.parametrize(
    ("rule", "server", "message"),
    [
        (Fltrust(), None, r"needs the server's update \(d,\) as its second argument, got none"),
        (Fltrust(), torch.ones(2, 1), r"needs the server's update \(d,\) as its second argument, got shape \(2, 1\)"),
        (SelfRejection(f=1), None, "needs losses on the server's data, got plain tensors; give it a ServerOracle"),
        (Bygars(), torch.ones(1), "needs gradients on the server's data, got plain tensors; give it a ServerOracle"),
    ],
)
def test_what_the_rule_asks_of_the_server_is_needed(rule, server, message):
    with pytest.raises(SettingError, match=message):
        rule(X, server)


def test_a_server_that_computes_is_asked():
    rows, oracle = world.honest_updates(), world.oracle()
    assert torch.equal(Boba(2)(rows, oracle), Boba(2)(rows, oracle.class_updates))
    assert SelfRejection(f=1)(rows, oracle).isfinite().all()


def test_rows_are_clients_by_number_unless_named():
    rule = Monna(f=1, trusted=4)
    assert torch.equal(rule(X), rule(X, ids=range(5)))
    assert rule(X, ids=[3, 4, 0, 1, 2]).item() != rule(X).item()


def test_the_seed_says_what_is_drawn():
    rows = torch.arange(12.0)[:, None] ** 2
    found = {seed: Bucketing(Krum(f=1), s=2)(rows, seed=seed).item() for seed in range(8)}
    assert len(set(found.values())) > 1
    assert found[3] == Bucketing(Krum(f=1), s=2)(rows, seed=3).item()


def test_data_weights_count():
    assert Average()(X[:2], weights=torch.tensor([3.0, 1.0])).item() == 0.25


# Where a setting has no meaning, beside f < 0, which the contract asks every rule about.
REFUSED = [
    (lambda: Boba(1, p_min=0.1), "boba needs p_min <= 0, got 0.1"),
    (lambda: Boba(1, max_iter=0), "max_iter >= 1"),
    (lambda: Boba(1, stage_1="greedy"), "alternating, exhaustive, none, got 'greedy'"),
    (lambda: Bucketing(Average(), 0), "bucketing needs s >= 1, got 0"),
    (lambda: Bucketing(Average(), 12).check(11, 3), "bucketing needs s <= n, got s=12 and n=11; lower"),
    (lambda: Bucketing(Average(), 2, "burn"), "leftover must be one of drop, keep, got 'burn'"),
    (lambda: Bygars(steps=0), "bygars needs steps >= 1, got 0"),
    (lambda: Bygars(step_size=0), "bygars needs step_size > 0, got 0"),
    (lambda: CentredClipping(0.0), "centred_clipping needs radius > 0, got 0"),
    (lambda: CentredClipping(inf), "centred_clipping needs a finite radius > 0, got inf"),
    (lambda: CentredClipping(1.0, 0), "n_iterations >= 1, got 0"),
    (lambda: SequentialCentredClipping(inf), "centred_clipping needs a finite radius > 0, got inf"),
    (lambda: SequentialCentredClipping(1.0, 0), "n_clusters >= 1, got 0"),
    (lambda: SequentialCentredClipping(1.0, 8).check(7, 3), "n >= n_clusters updates, got n=7 and n_clusters=8"),
    (lambda: ClippedClustering("ward"), "linkage must be one of average, single, got 'ward'"),
    (lambda: ClippedClustering(max_radius=0), "max_radius > 0, got 0"),
    (lambda: ClippedSum(0.0), "clipped_sum needs radius > 0, got 0.0"),
    (lambda: ClippedSum(inf), "finite radius > 0, got inf"),
    (lambda: ClippedSum(1.0, "l3"), "penalty must be one of huber, l2, l1, linf, got 'l3'"),
    (lambda: Clipping(Average(), -1.0), "clipping needs radius >= 0, got -1.0"),
    (lambda: Clipping(Average(), inf), "finite radius >= 0, got inf"),
    (lambda: Clipping(Average(), 1.0, -0.1), "clipping needs noise >= 0, got -0.1"),
    (lambda: Correntropy(bandwidth=0.0), "correntropy needs bandwidth > 0, got 0"),
    (lambda: Correntropy(bandwidth=inf), "correntropy needs a finite bandwidth > 0, got inf"),
    (lambda: Correntropy(eps=0.0), "correntropy needs 0 < eps < 1, got 0"),
    (lambda: Correntropy(eps=1.0), "correntropy needs 0 < eps < 1, got 1"),
    (lambda: Dnc(2, 0.0), "dnc needs c > 0, got 0"),
    (lambda: Dnc(2, 1.0, 0), "n_iterations >= 1, got 0"),
    (lambda: Dnc(11).check(11, 3), "dnc needs 0 <= f < n, c > 0 and c f < n, got n=11, f=11 and c=1.0"),
    (lambda: Dnc(6, 2.0).check(11, 3), "got n=11, f=6 and c=2.0"),
    (lambda: Flame(-0.1), r"noise >= 0, got -0\.1"),
    (lambda: Foolsgold(0.0), "confidence > 0, got 0"),
    (lambda: Gas(Krum(2), 2, 0), "n_groups >= 1, got 0"),
    (lambda: Gas(ServerOnly(), 2), "ServerOnly compares whole updates with the server's data; use another"),
    (lambda: GeometricMedian(0.0), "geometric_median needs 0 < eps < 1, got 0"),
    (lambda: GeometricMedian(1.0), "geometric_median needs 0 < eps < 1, got 1"),
    (lambda: Krum(1, "all"), "krum's neighbours must be one of n-f-2, n-f-1, got 'all'"),
    (lambda: Krum(5, "n-f-1").check(6, 3), r"n >= f \+ 2 updates, so that n - f - 1 >= 1 .*n=6 and f=5"),
    (lambda: Median("left"), "lower, upper, mean, got 'left'"),
    (lambda: MultiKrum(1, 0), "m >= 1, got 0"),
    (lambda: MultiKrum(1, 7).check(6, 3), "m=7 and n=6"),
    (lambda: MultiKrum(1, neighbours="all"), "krum's neighbours must be one of n-f-2, n-f-1, got 'all'"),
    (lambda: Monna(2, "me"), "trusted.*, got 'me'"),
    (lambda: Monna(2, None), "trusted.*, got None"),
    (lambda: Monna(2, -1), "trusted.*, got -1"),
    (lambda: Nnm(TrimmedMean(6), 3).check(11, 3), "trimmed_mean needs"),
    (lambda: Rage(-1), "rage needs n_iterations >= 0, got -1"),
    (lambda: Resampling(Average(), f=1, s=0), "resampling needs s >= 1, got 0"),
    (lambda: Resampling(Average(), f=1, s=10).check(9, 4), "resampling needs s <= n, got s=10 and n=9; lower"),
    (lambda: Rfa(0.0), "rfa needs nu > 0, got 0"),
    (lambda: Rfa(inf), "rfa needs a finite nu > 0, got inf"),
    (lambda: Rfa(0.1, 0), "rfa needs n_iterations >= 1, got 0"),
    (lambda: Rlr(Average(), -1.0), "rlr needs threshold >= 0, got -1"),
    (lambda: Rlr(Average(), 8.5).check(8, 3), "0 <= threshold <= n, .* got threshold=8.5 and n=8; lower"),
    (lambda: ServerMixture(Average(), -0.1), "server_mixture needs 0 <= share <= 1, got -0.1"),
    (lambda: ServerMixture(Average(), 1.1), "server_mixture needs 0 <= share <= 1, got 1.1"),
    (lambda: Signguard(lower=-0.1), "signguard needs 0 <= lower < 1, got -0.1"),
    (lambda: Signguard(lower=1.0), "0 <= lower < 1, got 1.0"),
    (lambda: Signguard(upper=1.0), "upper > 1, got 1.0"),
    (lambda: Signguard(upper=inf), "finite upper > 1, got inf"),
    (lambda: Signguard(share=0.0), "0 < share <= 1, got 0.0"),
    (lambda: Signguard(share=1.1), "0 < share <= 1, got 1.1"),
    (lambda: Zeno(2, -1.0), "zeno needs rho >= 0, got -1"),
    (lambda: Foolsgold()(X, ids=[1, 2]), r"ids must be 5 different numbers, one per update, got \[1, 2\]"),
    (lambda: Foolsgold()(X, ids=[1] * 5), "ids must be 5 different numbers"),
]


@pytest.mark.parametrize(("ask", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_a_setting_that_means_nothing_is_refused(ask, message):
    with pytest.raises(SettingError, match=message):
        ask()


# What the rules' own words about n come to for f = 4 or four iterations, s = 2 and four classes.
LEAST = {
    1: "alignins average bygars centred_clipping clipped_clustering clipped_sum correntropy flame fltrust median rfa",
    5: "average_rejection cge dnc nnm_geometric_median nnm_median rage self_rejection zeno",
    7: "krum layerwise multi_krum nnm_krum nnm_multi_krum resampling",
    8: "boba rlr",
    9: "aksel arc arc_nnm_krum caf ctma faba gas mda meamed monna nnm_trimmed_mean phocas smea trimmed_mean",
    14: "bucketing_krum bucketing_multi_krum",
    19: "bulyan",
}


@pytest.mark.parametrize(("name", "least"), [(name, n) for n, names in LEAST.items() for name in names.split()])
def test_how_many_updates_a_rule_needs(name, least):
    """The contract lets the rule run with as many, and has one less refused."""
    assert conf.make("aggregator", name, f=4, n_iterations=4).least_n(4) == least


@pytest.mark.parametrize("rule", [Average(), Normalized(), ClippedSum(0.5)])
def test_a_rule_that_compares_nothing_asks_for_no_inner_products(rule):
    updates = world.updates()
    rule.aggregate(updates, world.oracle())
    assert "gram" not in vars(updates)


SELECTIVE = [CentredClipping(), ClippedClustering(), Dnc(1), Krum(1), Median(), MultiKrum(1), Normalized(), Rage(1)]
SELECTIVE += [Rfa(), SequentialCentredClipping(), Signguard(), TrimmedMean(1)]


@pytest.mark.parametrize("rule", SELECTIVE, ids=lambda rule: rule.spelled())
def test_a_rule_that_has_no_update_left_says_so_by_its_name(rule):
    with pytest.raises(DivergedError, match=f"^{rule.spelled()} needs at least one update without NaN and inf, got"):
        rule(torch.full((6, 2), torch.nan))
