import numpy as np
import pytest
import torch

from lightning_fl import Federation, SettingError, Updates
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.delayed_momentum import DelayedMomentum
from lightning_fl.aggregator.krum import Krum
from lightning_fl.aggregator.median import Median
from lightning_fl.server_oracle import GivenServer
from tests.aggregator import reference_field as field

ROUNDS = [
    {0: (1.0, 0.0), 1: (2.0, 1.0), 3: (10.0, -9.0)},
    {0: (0.5, 0.5), 2: (1.0, 2.0)},
    {1: (1.0, 1.0), 2: (0.0, 1.0), 3: (-8.0, 7.0)},
]
SERVER = GivenServer(None)


def play(rule, rounds=ROUNDS):
    """The answers of the rounds, each after a trial call."""
    found = []
    for sent in rounds:
        rows = Updates(torch.tensor(list(sent.values())).double(), ids=list(sent))
        rule.aggregate(Updates(rows.rows * 9, ids=rows.ids), SERVER)
        found.append(rule.aggregate(rows, SERVER))
        rule.on_train_batch_end(*[None] * 5)
    return found


def of_four(rule, **settings):
    rule = DelayedMomentum(rule, 0.2, **settings)
    rule.check_clients(Federation(4, 1, "replacement", participation=0.75))
    return rule


@pytest.mark.parametrize(("absent", "start"), [("decay", "zero"), ("keep", "zero"), ("keep", "first")])
def test_small_problem(absent, start):
    expected = field.delayed_momenta(ROUNDS, 4, 0.2, 0.5, absent, start)
    for inner, loop in [(Average(), lambda m: m.mean(0)), (Median("mean"), lambda m: np.median(m, axis=0))]:
        answers = play(of_four(inner, participation=0.5, absent=absent, start=start))
        for momenta, found in zip(expected, answers, strict=True):
            np.testing.assert_allclose(found.update, loop(momenta), rtol=1e-12, atol=1e-15)


def test_literal():
    """Client 0 at alpha 0.2 and p 0.5: 0.2, then 0.9 x 0.2 + 0.2 x 0.5 = 0.28, then 0.252."""
    rule = of_four(Average(), participation=0.5)
    play(rule)
    momenta = rule._remembered["momenta"]
    assert momenta[0][0].item() == pytest.approx(0.252)
    assert sorted(momenta) == [0, 1, 2, 3]


def test_the_share_is_the_federation_s():
    given, known = of_four(Average(), participation=0.75), of_four(Average())
    for one, other in zip(play(given), play(known), strict=True):
        torch.testing.assert_close(one.update, other.update)


def test_who_was_never_seen_is_a_row_of_zeros_or_none():
    first = ROUNDS[:1]
    zeros, skipped = (play(of_four(Average(), unseen=unseen), first)[0].update for unseen in ("zero", "skip"))
    torch.testing.assert_close(zeros * 4, skipped * 3)


def test_trust_is_of_this_round_s_clients():
    found = play(of_four(Krum(1)), [ROUNDS[0]])[0]
    assert found.trust.shape == (3,)
    assert found.weights is None


def test_the_rule_s_f_counts_all_clients():
    """Of 100 clients 20 lie and 10 take part: the rule sees 100 rows."""
    rule = DelayedMomentum(Krum(20))
    with pytest.raises(SettingError, match=r"krum needs f >= 0 and n >= f \+ 3"):
        rule.check(10, 3)
    rule.check_clients(Federation(100, 20, "replacement", participation=0.1))
    rule.check(10, 3)


def test_a_majority_of_a_round_does_not_win():
    """Two of the three who take part lie: the median follows them, the momenta of all ten do not."""
    honest, liar = (1.0, 1.0), (-50.0, -50.0)
    everybody = dict.fromkeys(range(8), honest)
    rounds = [everybody, everybody, {0: honest, 8: liar, 9: liar}]
    rows = torch.tensor(list(rounds[-1].values()))
    assert Median()(rows).tolist() == [-50, -50]
    rule = DelayedMomentum(Median(), 0.2)
    rule.check_clients(Federation(10, 2, "replacement", participation=0.3))
    assert play(rule, rounds)[-1].update.min() > 0


def test_a_broken_row_counts_as_not_sent():
    rows = [ROUNDS[0], {0: (torch.nan, 0.5), 2: (1.0, 2.0)}]
    without = [ROUNDS[0], {2: (1.0, 2.0)}]
    for one, other in zip(play(of_four(Average()), rows), play(of_four(Average()), without), strict=True):
        torch.testing.assert_close(one.update, other.update)
