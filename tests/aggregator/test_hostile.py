"""What rows that are broken, huge, or anything at all can do to the rules: laws that many rules have in common."""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lightning_fl import Updates
from lightning_fl.aggregator.aksel import Aksel
from lightning_fl.aggregator.alignins import Alignins
from lightning_fl.aggregator.arc import Arc
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.bucketing import Bucketing
from lightning_fl.aggregator.bulyan import Bulyan
from lightning_fl.aggregator.caf import Caf
from lightning_fl.aggregator.cge import Cge
from lightning_fl.aggregator.clipped_clustering import ClippedClustering
from lightning_fl.aggregator.clipping import Clipping
from lightning_fl.aggregator.correntropy import Correntropy
from lightning_fl.aggregator.dnc import Dnc
from lightning_fl.aggregator.faba import Faba
from lightning_fl.aggregator.fedseca import Fedseca
from lightning_fl.aggregator.flame import Flame
from lightning_fl.aggregator.foolsgold import Foolsgold
from lightning_fl.aggregator.gas import Gas
from lightning_fl.aggregator.geometric_median import GeometricMedian
from lightning_fl.aggregator.huber import Huber
from lightning_fl.aggregator.krum import Krum, MultiKrum
from lightning_fl.aggregator.lasa import Lasa
from lightning_fl.aggregator.layerwise import Layerwise
from lightning_fl.aggregator.mda import minimum_diameter_weights
from lightning_fl.aggregator.meamed import Meamed
from lightning_fl.aggregator.median import Median
from lightning_fl.aggregator.medoid import Medoid
from lightning_fl.aggregator.monna import Monna
from lightning_fl.aggregator.nnm import Nnm
from lightning_fl.aggregator.phocas import Phocas
from lightning_fl.aggregator.rage import Rage
from lightning_fl.aggregator.rejection import AverageRejection, SelfRejection, Zeno
from lightning_fl.aggregator.rfa import Rfa
from lightning_fl.aggregator.rlr import Rlr
from lightning_fl.aggregator.sign_vote import SignVote
from lightning_fl.aggregator.signguard import Signguard
from lightning_fl.aggregator.smea import Smea
from lightning_fl.aggregator.trimmed_mean import TrimmedMean
from lightning_fl.contract import hostile, world
from tests.aggregator.server import Server

N, D = 19, world.D  # bulyan needs 4f + 3 rows
MODEL = Server(torch.linspace(-2, 3, D))


@dataclass(frozen=True)
class Asked:
    """A rule, and what it promises.

    Args:
        rule: It, where f clients may lie.
        near: Whether an answer is near enough to the honest rows.  None: a test of the rule's own says so.
        least: How many honest clients that takes, as a function of f.
        huge: Whether it is all the same how huge a row is.
        fewer: Whether broken rows count among the f.
        alone: Whether the only row that is not broken is the answer.
        server: What it is asked with; None: nothing.
    """

    rule: Callable
    near: Callable[[Tensor, Tensor], bool] | None = None
    least: Callable[[int], int] = lambda f: 3 * f
    huge: bool = True
    fewer: bool = True
    alone: bool = True
    server: object = None

    def __call__(self, x, f):
        server = self.server(x) if callable(self.server) else self.server
        return self.rule(f)(x, server)


def longest(times):
    """No longer than so many times the longest honest row."""
    return lambda honest, answer: answer.norm() <= times * honest.norm(dim=1).max() * (1 + 1e-5)


def diameters(times):
    """No farther from the honest mean than so many diameters of the honest rows."""
    return lambda honest, answer: (answer - honest.mean(0)).norm() <= times * torch.pdist(honest).max()


def around(times):
    """In every coordinate, no farther from the middle of the honest values than so many times their range."""

    def near(honest, answer):
        low, high = honest.min(0).values, honest.max(0).values
        return (answer - (low + high) / 2).abs().le(times * (high - low) + 1e-6).all()

    return near


def beside_one(honest, answer):
    """A chosen row has no more than the worst honest score, and an honest neighbour."""
    return (honest - answer).norm(dim=1).min() <= sqrt(len(honest)) * torch.pdist(honest).max()


def world_server(x):
    server = world.oracle()
    server.model.to(x.dtype)
    samples = server.classes.samples
    object.__setattr__(samples, "inputs", samples.inputs.to(x.dtype))
    return server


def modelled(x):
    return Server(MODEL.parameters.to(x))


def first_of_least_diameter(f):
    """MDA, with the first of equal subsets in place of one that is drawn."""

    def ask(x, server):
        rows = Updates(x)
        return rows.combine(minimum_diameter_weights(rows.centred.gram, f))

    return ask


def one_more(f):
    return f + 1


# Beside a row of 1e6 the others lose some 1e-6 of their weight in CAF, and nothing beside one of 1e30.
RULES = {
    "aksel": Asked(Aksel, diameters(3)),
    "alignins": Asked(lambda f: Alignins(), huge=False, server=modelled),
    "arc": Asked(lambda f: Arc(Average(), f), huge=False),
    "average_rejection": Asked(AverageRejection, huge=False, server=world_server),
    "bulyan": Asked(Bulyan, around(1.5), least=lambda f: 3 * f + 3),
    "bulyan, once": Asked(lambda f: Bulyan(f, once=True), around(1.5), least=lambda f: 3 * f + 3),
    "bucketing": Asked(
        lambda f: Bucketing(Krum(f), 2), longest(3), least=lambda f: 3 * f + 6, huge=False, fewer=False
    ),  # 2f + 3 buckets suffice for Krum, however many are spoilt
    "caf": Asked(Caf, diameters(4)),
    "cge": Asked(Cge),
    "clipped_clustering": Asked(lambda f: ClippedClustering(), longest(1)),
    "clipping": Asked(lambda f: Clipping(Median("mean"), 2.0), alone=False),
    "correntropy": Asked(lambda f: Correntropy()),
    "dnc": Asked(lambda f: Dnc(f, n_iterations=2), longest(2), least=lambda f: 11, huge=False),
    "faba": Asked(Faba),
    "fedseca": Asked(lambda f: Fedseca(), alone=False),
    "flame": Asked(lambda f: Flame(), longest(1), server=modelled),
    "foolsgold": Asked(lambda f: Foolsgold(), huge=False),
    "gas": Asked(lambda f: Gas(Krum(f), f, 3)),
    "geometric_median": Asked(lambda f: GeometricMedian(1e-9)),
    "huber": Asked(lambda f: Huber(1.0)),
    "krum": Asked(Krum, beside_one, least=lambda f: f + 3),
    "lasa": Asked(lambda f: Lasa()),
    "layerwise": Asked(lambda f: Layerwise(Krum(f))),
    "mda": Asked(first_of_least_diameter, diameters(3)),
    "meamed": Asked(Meamed, around(1.5), one_more),
    "median": Asked(lambda f: Median(), around(0.5), one_more),
    "medoid": Asked(lambda f: Medoid(), longest(3)),
    "monna": Asked(lambda f: Monna(f, trusted=0)),
    "multi_krum": Asked(MultiKrum, beside_one, least=lambda f: max(3 * f, 3)),
    "nnm_krum": Asked(lambda f: Nnm(Krum(f), f), longest(5), least=lambda f: 3 * f + 3),
    "nnm_geometric_median": Asked(lambda f: Nnm(GeometricMedian(), f), longest(5)),
    "nnm_median": Asked(lambda f: Nnm(Median(), f), longest(5)),
    "nnm_trimmed_mean": Asked(lambda f: Nnm(TrimmedMean(f), f), longest(5)),
    "phocas": Asked(Phocas, around(1.5), one_more),
    "rage": Asked(Rage, longest(1)),
    "rage, centred": Asked(lambda f: Rage(f, centred=True), longest(1), huge=False),
    "rfa": Asked(lambda f: Rfa(n_iterations=5), longest(3)),
    "rlr": Asked(lambda f: Rlr(Median(), 3.0), alone=False),
    "self_rejection": Asked(SelfRejection, huge=False, server=world_server),
    "sign_vote": Asked(lambda f: SignVote(), alone=False),
    "signguard": Asked(lambda f: Signguard(), longest(1)),
    "smea": Asked(Smea, diameters(3)),
    "trimmed_mean": Asked(TrimmedMean, around(0.5), one_more),
    "zeno": Asked(Zeno, huge=False, server=world_server),
}


@pytest.mark.parametrize("name", [name for name in RULES if RULES[name].fewer])
def test_broken_rows_are_left_out_and_count_among_the_f(name, draw):
    """What is left is the rule on the others with f less by their number."""
    ask, x = RULES[name], torch.randn(N, D, generator=draw, dtype=torch.float64)
    x[2], x[5, 1], x[7, 3] = torch.inf, torch.nan, -torch.inf
    rest = x[x.isfinite().all(1)]
    for f in (4, 3, 1):
        torch.testing.assert_close(ask(x, f), ask(rest, max(f - 3, 0)))
    x[1:] = torch.nan
    if ask.alone:
        torch.testing.assert_close(ask(x, 4), x[0])


@pytest.mark.parametrize("name", [name for name in RULES if RULES[name].huge])
def test_how_huge_a_row_is_does_not_matter(name, draw):
    ask, x, answers = RULES[name], torch.randn(N, D, generator=draw), []
    for huge in (1e6, 1e30):
        x[2], x[7] = huge, -huge
        answers.append(ask(x, 3))
    torch.testing.assert_close(*answers, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in RULES if RULES[name].near])
@settings(max_examples=60, deadline=None)
@given(hostile.lists(5, least=0), st.integers(0, 6), st.integers(0, 99), st.sampled_from([1, None]))
def test_hostile_rows_leave_it_near_the_honest(name, values, more, seed, entries):
    rule = RULES[name]
    honest = torch.randn(rule.least(len(values)) + more, D, generator=torch.Generator().manual_seed(seed))
    if len(honest) > 1:
        assert rule.near(honest, rule(hostile.rows(honest, values, entries), len(values)))
