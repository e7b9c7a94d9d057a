"""What the ensemble finds: known worst cases, no less than any other attack, and how odd rules are met."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import lightning_fl as fl
from lightning_fl import SettingError, Updates
from lightning_fl.adversary.one_coordinate import OneCoordinate
from lightning_fl.adversary.opt_alie import OptAlie
from lightning_fl.adversary.opt_ipm import OptIpm
from lightning_fl.aggregator.bucketing import Bucketing
from lightning_fl.aggregator.median import Median
from lightning_fl.contract import conf, world
from lightning_fl.metric.robustness import measured_kappa
from lightning_fl.yardstick import attacks
from lightning_fl.yardstick.attacks import MEMBERS, NAME, UNBOUNDED
from lightning_fl.yardstick.box import ClosedBox, Spent
from lightning_fl.yardstick.honest import FAMILIES, drawn

H, F = 9, 2
SEARCHES = {"adaptive", "one_coordinate", "opt_alie", "opt_ipm"}  # of conf, those that ask the rule
FIRST = 400  # questions of the ensemble without its walk, or nearly so


def trimmed(rows):
    """The trimmed mean of NumPy rows."""
    return np.sort(rows, axis=0)[F:-F].mean(0)


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("name", ["median", "trimmed mean"])
def test_finds_the_worst_of_a_rule_that_is_monotone_in_each_coordinate(name, d):
    """All lies go beyond one end: the F honest values at the other end are cut, or the middle moves by F places."""
    x = np.random.default_rng(d).standard_normal((H, d))
    ordered, mean = np.sort(x, axis=0), x.mean(0)
    middle = (H + F) // 2
    ends = (ordered[middle - F], ordered[middle]) if name == "median" else (ordered[:-F].mean(0), ordered[F:].mean(0))
    error = np.maximum((ends[0] - mean) ** 2, (ends[1] - mean) ** 2).sum()
    rule = (lambda rows: np.median(rows, axis=0)) if name == "median" else trimmed
    found = fl.worst(rule, x, F, budget=FIRST)
    assert found.kappa == pytest.approx(error / x.var(0).sum(), rel=1e-9)
    assert measured_kappa(Updates(torch.tensor(x)), torch.tensor(rule(np.vstack([x, found.rows]))), H) == found.kappa


def test_averaging_is_unbounded():
    found = fl.worst(lambda rows: rows.mean(0), world.honest_updates(H), F)
    assert found.kappa > UNBOUNDED
    assert "unbounded" in str(found)
    assert found.asked < 500  # nobody looks for worse
    assert found.notes == ("answers NaN or inf to rows of NaN or inf (first: non_finite nan)",)


def test_every_attack_of_conf_that_needs_no_more_than_rows_is_a_member():
    honest, asked = world.honest_updates(H), []

    def rule(rows):
        asked.append(rows[H:].clone())
        return rows[:H].mean(0)

    fl.worst(rule, honest, F, budget=80)
    missing, searches = [], set()
    for name in set(conf.names("adversary")) - {"none"}:
        try:
            attack = conf.make("adversary", name)
            searches |= {name} if attack.knows == "rule" else set()
            rows = attack(honest, F)
        except SettingError:  # it needs a file, data, a model or the rule
            continue
        if not any(torch.allclose(rows, each, equal_nan=True) for each in asked):
            missing.append(name)
    assert missing == []
    assert searches == SEARCHES


def on_rows(name):
    """A rule of conf, unless it needs more than rows."""
    rule = conf.make("aggregator", name, f=F, n_iterations=F)
    if rule.needs_server or rule.needs_model or rule.needs_client is not None:
        pytest.skip(f"{name} needs more than rows")
    return rule


def mean_kappa(rule, honest, forged, draws):
    rows = torch.cat([honest, forged])
    return np.mean([measured_kappa(Updates(honest), rule(rows, seed=draw), H) for draw in range(draws)])


@pytest.mark.parametrize("name", conf.names("aggregator"))
def test_a_search_finds_no_less_through_the_box_than_from_the_rule(name):
    """Of a rule that draws, the one given the rule knows the first draw; both are judged by the mean over four."""
    rule, honest = on_rows(name), world.honest_updates(H)
    box, kappas = ClosedBox(rule, honest, F, budget=100), []
    MEMBERS["copies"](box, 0)
    for attack in (OptAlie(evaluations=8), OptIpm(evaluations=8), OneCoordinate(evaluations=8)):
        kappas.append(mean_kappa(rule, honest, attack(honest, F, rule=rule), 4 if box.draws else 1))
        box.ask(attack(honest, F, rule=box))
    assert max(kappas) <= box.ranked()[0][1].kappa * (1 + 1e-6)


def thorough_but(names):
    """All rules; only some are tried each time: the others take minutes."""
    minutes = (pytest.mark.thorough, pytest.mark.slow)
    return [pytest.param(name, marks=() if name in names else minutes) for name in conf.names("aggregator")]


@pytest.mark.parametrize("name", thorough_but(["krum", "meamed", "nnm_trimmed_mean", "rosdhb"]))  # the last one draws
def test_finds_no_less_than_attacks_that_ask_the_rule(name):
    """The library's, which see more of a rule than a closed box shows, and byzfl's."""
    rule, honest = on_rows(name), world.honest_updates(H)
    found = fl.worst(rule, honest, F, budget=450)
    sent = [conf.make("adversary", name)(honest, F, rule=rule) for name in SEARCHES]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import byzfl
        except ImportError:
            pass
        else:
            for kind in (byzfl.Optimal_ALittleIsEnough, byzfl.Optimal_InnerProductManipulation):
                sent.append(kind(rule, [], F)(honest).expand(F, -1))
    kappas = [mean_kappa(rule, honest, forged, 4) for forged in sent]
    assert found.kappa >= max(kappas) * (1 - 1e-6)
    assert found.proven is None or found.kappa <= found.proven


def test_a_family_shows_what_no_rule_can_avoid():
    found = fl.kappa(Median("mean"), 7, 2, 2, budget=80)
    assert set(found.families) == set(FAMILIES)
    assert found.worst.least == pytest.approx(2 / 3)
    assert found.worst.least <= found.kappa <= found.worst.proven
    assert found.kappa == max(each.kappa for each in found.families.values())
    assert "two camps" in str(found)
    assert f"{NAME} against Median(middle=mean): n = 7, f = 2, d = 2" in str(found)


def test_the_same_seed_finds_the_same_and_leaves_all_generators_alone():
    honest = world.honest_updates(H)
    states = torch.random.get_rng_state(), np.random.get_state()[1].copy()

    def rule(rows):
        return rows[torch.randperm(len(rows))[:5]].median(0).values

    first, second = (fl.worst(rule, honest, F, seed=1, budget=150) for _ in range(2))
    assert torch.equal(first.rows, second.rows)
    assert first.kappa == second.kappa
    assert first.notes[0].startswith("draws at random")
    assert torch.equal(torch.random.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()


def test_one_of_ours_that_draws_is_judged_by_the_mean_over_draws():
    rule = Bucketing(Median(), 2)
    found = fl.worst(rule, world.honest_updates(H), F, budget=60)
    rows = torch.cat([found.honest, found.rows])
    kappas = [measured_kappa(Updates(found.honest), rule(rows, seed=s), H) for s in range(4)]
    assert found.kappa == pytest.approx(np.mean(kappas))
    assert torch.allclose(found.answer, torch.stack([rule(rows, seed=s) for s in range(4)]).mean(0))
    assert max(found.members.values()) == found.kappa


class Remembering:
    """A rule whose answer grows with each call, and that takes torch's rows only."""

    calls = 0

    def __call__(self, rows):
        self.calls += 1
        return rows.nanmean(dim=0) * self.calls


def test_a_rule_that_remembers_is_asked_in_its_first_round_and_stays_as_it_is():
    rule = Remembering()
    found = fl.worst(rule, world.honest_updates(H).numpy(), F, budget=20)
    assert rule.calls == 0
    assert any("remembers" in note for note in found.notes)
    assert found.notes[-1] == f"the budget of 20 questions ended in {[*MEMBERS][20]}, before 38 members"
    assert torch.equal(found.answer, torch.cat([found.honest, found.rows]).nanmean(dim=0))


def test_a_rule_that_raises_or_changes_its_rows_or_its_mind():
    count = [0]

    def rule(rows):
        if not np.isfinite(rows).all():
            raise RuntimeError("no NaN, please")
        count[0] += 1
        middle = np.median(rows, axis=0) + 1e-3 * (count[0] % 2)
        rows[:] = 0
        return middle

    honest = world.honest_updates(H).double().numpy()
    before = honest.copy()
    found = fl.worst(rule, honest, F, budget=60)
    assert (honest == before).all()
    assert any(note == "raises RuntimeError: no NaN, please (first: non_finite nan)" for note in found.notes)
    assert any("answers the same rows differently" in note for note in found.notes)


@pytest.mark.parametrize("name", FAMILIES)
def test_families_are_the_same_for_everybody(name):
    rows = drawn(name, 6, 2, 5, seed=1)
    assert rows.shape == (6, 5)
    assert rows.isfinite().all()
    assert torch.equal(rows, drawn(name, 6, 2, 5, seed=1))
    assert not torch.equal(rows, drawn(name, 6, 2, 5, seed=2))


def test_members_are_frozen():
    """A change of these needs another name than ByzAttack-1: what was measured under it is compared with."""
    assert len(MEMBERS) == 59
    assert [*MEMBERS][-11:] == [
        *("copies", "corners", "opt_ipm", "opt_ipm back", "opt_alie", "opt_alie back"),
        *("one_coordinate", "every coordinate", "adaptive", "adaptive ascent", "walk"),
    ]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("krum", torch.ones(3, 2), 1), r"needs a rule to call, such as fl.aggregator.Krum\(f=1\), got 'krum'"),
        ((Median, torch.ones(3, 2), 1), r"got the class Median; write Median\(...\)"),
        ((lambda rows: rows[0], torch.zeros(3, 2), 0), "f must be a whole number of at least 1, got 0"),
        ((lambda rows: rows[0], torch.eye(3).half(), 1), r"float32 or float64, got float16; give honest\.float\(\)"),
        ((lambda rows: rows[0], torch.tensor([[1.0], [torch.nan]]), 1), "at least 2 honest rows, all finite"),
        ((lambda rows: rows[0, 0], torch.ones(3, 2), 1), "makes a vector .* got TypeError: an answer of shape"),
        ((fl.aggregator.Krum(f=3), torch.eye(3), 2), r"^krum needs .* got n=5 and f=3"),
        ((lambda rows: 1 / 0, torch.ones(3, 2), 1), "got ZeroDivisionError: division by zero from"),
    ],
)
def test_refuses(arguments, error):
    with pytest.raises(SettingError, match=error):
        fl.worst(*arguments)


def test_a_walk_starts_from_the_worst_and_ends_where_harm_has_no_bound():
    worst = SimpleNamespace(kappa=UNBOUNDED)
    less = SimpleNamespace(kappa=1.0, rows=torch.zeros(1, 2), answer=torch.zeros(2))
    honest, one = SimpleNamespace(rows=torch.ones(3, 2), d=2), torch.ones(2)
    ranked = [("a", worst), ("b", less)]
    asked = []
    box = SimpleNamespace(found=[1], f=1, honest=honest, mean=one, std=one, ranked=lambda: ranked, ask=asked.append)
    attacks._walk(box, 0)
    assert asked == []


def test_a_walk_does_more_harm_than_what_it_starts_from():
    found = fl.worst(lambda rows: rows.median(0).values, world.honest_updates(H), F, budget=FIRST + 200)
    assert found.asked == FIRST + 200
    assert "walk" in found.members
    box = ClosedBox(lambda rows: rows.median(0).values, world.honest_updates(H), F, 100)
    first = box.ask(box.mean.expand(F, -1) + 0.1 * box.std).kappa
    box.member = "walk"
    with pytest.raises(Spent):
        attacks._walk(box, 0)
    assert box.found["walk"].kappa > first
