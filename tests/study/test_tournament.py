"""A tournament: what is played, found again, shared and reported."""

import csv
import os
import signal
from dataclasses import replace

import pytest

from lightning_fl import SettingError
from lightning_fl.aggregator import median
from lightning_fl.aggregator.median import Median
from lightning_fl.errors import MissingError
from lightning_fl.run.assemble import make
from lightning_fl.run.check import checked
from lightning_fl.run.identity import identity
from lightning_fl.run.lock import FileLock
from lightning_fl.study import store
from lightning_fl.study import tournament as module
from lightning_fl.study.runner import Runner
from lightning_fl.study.standings import standings
from lightning_fl.study.tournament import FIELDS, STORED, Entries, Panel, Place, Setting, Tournament, keep
from lightning_fl.study.tournament_report import draw, introduction, panels_of, row_of, terminal, write
from tests import saved

# Seconds: four clients, two rounds.
SMALL = ["model=logistic", "federation.n_clients=8", "trainer.max_steps=2", "trainer.val_check_interval=2"]


def small(folder, **given):
    settings = {
        "rules": ["average", "krum"],
        "attacks": ["sign_flip"],
        "skew": ["iid", "0.5"],
        "byzantine": [2],
        "seeds": [0, 1],
        "rates": [0.1],
    }
    return Tournament(Entries.choose(**({"more": SMALL, "protocol": "2025"} | settings | given)), folder)


@pytest.fixture(autouse=True)
def nothing_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TABLES", tmp_path / "kept")


def play(tournament, cells):
    return list(tournament.play(cells, Runner(), "1.2.3"))


def test_a_cell_s_settings_compose_whatever_the_rule_chooses(tmp_path):
    more = ["client.beta=0.5"]
    tournament = Tournament(Entries.choose(rules=["mda + momentum"], more=more), tmp_path)
    config = checked(tournament.cell(Place("mda + momentum", "ipm", "0.1", 15, 0.1), 2).command)
    assert (config.f, config.federation.n_byzantine, config.client.beta, config.seed) == (15, 15, 0.5, 2)
    assert (config.partition.alpha, config.server.lr) == (0.1, 0.1)


def test_all_rules_and_attacks_but_the_youngest_are_in_protocol_2025(tmp_path):
    entries = Entries.choose(protocol="2025")
    assert {"boba", "nnm_trimmed_mean", "mda + momentum"} <= set(entries.rules)
    assert entries.attacks[0] == "none"
    assert {"adaptive", "ipm", "min_max"} <= set(entries.attacks)
    assert len(entries.attacks) == len(set(entries.attacks))
    assert "alie" not in entries.attacks  # younger than the standing
    assert "alie" in Entries.choose(attacks=["alie"], protocol="2025").attacks
    assert Entries.choose(attacks=["ipm", "zero", "label_flip"], knows=["nothing", "data"]).attacks == [
        *["none", "zero", "label_flip"]
    ]


@pytest.mark.parametrize("protocol", [path.stem for path in module.PROTOCOLS.glob("*.yaml")])
@pytest.mark.parametrize("quick", [False, True])
def test_a_protocol_s_settings_compose_and_its_runs_are_kept_by_themselves(tmp_path, protocol, quick):
    entries = Entries.choose(protocol=protocol, quick=quick)
    played = Tournament(entries, tmp_path)
    assert played.kept == module.TABLES / f"tournament_{protocol}.csv"
    assert "none" in entries.tuning
    skew, b, told = first = played.panels()[0]
    config = checked(played.cell(Place("krum", "ipm", skew, b, 0.1, told), 0).command)
    assert config.trainer.max_steps == config.trainer.val_check_interval
    assert config.f == first.f
    make(config.aggregator).check(make(config.federation).n, 10)


def test_a_protocol_has_what_it_does_not_set_from_the_one_that_it_is_like():
    calm, silo, usual = (Entries.choose(protocol=p, quick=True) for p in ("2026.2-silo", "2026.1-silo", "2026.1"))
    assert (calm.rates, silo.rates, usual.rates) == ([0.3], [1.0], [0.2])
    assert calm.rules == silo.rules != usual.rules
    assert calm.skew == usual.skew == ["pathological"]
    assert "trainer.max_steps=60" in calm.base


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"protocol": "2026"}, "there is no protocol 2026; did you mean 2026.3"),
        ({"rules": ["bobo"]}, "there is no rule bobo; did you mean boba"),
        ({"attacks": ["ipn"]}, "there is no attack ipn; did you mean ipm"),
        ({"skew": ["iidd"]}, "there is no partition iidd; did you mean iid"),
        ({"added": ["my_rule"]}, "there is no rule my_rule"),
        ({"knows": ["all"]}, "there is no knowledge all; valid: .*updates"),
        ({"added": ["mine: aggregator=krum aggregator.g=3"]}, "there is no setting aggregator.g"),
        ({"seeds": []}, "at least one of seeds, got none"),
        ({"more": [*SMALL, "seed=7"]}, "give --seeds in place of seed=7"),
        ({"more": [*SMALL, "twin=1"]}, "give --twins in place of twin=1"),
        ({"more": [*SMALL, "f=30"]}, "give --byzantine in place of f=30"),
        ({"more": [*SMALL, "+aggregator=krum"]}, "give --rules or --add in place of .aggregator=krum"),
        ({"added": ["mine: aggregator=krum server.lr=1"]}, "give --rates in place of server.lr=1"),
        ({"added": ["krum: aggregator=krum aggregator.f=1"]}, "there is a rule called krum already"),
        ({"added": ["mine: aggregator=krum", "mine: aggregator=median"]}, "there is a rule called mine already"),
        ({"added": [": aggregator=krum"]}, "--add needs LABEL: OVERRIDES, got ': aggregator=krum'"),
        ({"added": ["mine: 'aggregator=krum"]}, "overrides are separated by blanks, got .*No closing quotation"),
        ({"added": ["mine: aggregator=krum federation.n_byzantine=0"]}, "give --byzantine in place of federation.n_"),
        ({"more": [*SMALL, "partition.alpha=0.5"]}, "give --skew in place of partition.alpha=0.5"),
        ({"rules": []}, "at least one of rules, got none"),
        ({"rates": [0.1, 0.5], "more": [*SMALL, "data.validation_share=null"]}, "got no data.validation_share"),
    ],
)
def test_wrong_entries_are_refused_before_anything_is_played(tmp_path, given, message):
    with pytest.raises(SettingError, match=message):
        small(tmp_path / "out", **given).check(Runner(), "x")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_from_the_rates_to_the_page_and_nothing_is_left_to_play(tmp_path):
    tournament = small(tmp_path, rates=[1e-6, 0.1], skew=["pathological"])
    assert tournament.cells() == []  # no rate is known
    assert tournament.size == 8
    write(tournament)
    assert "0 of 20 runs finished" in (tmp_path / "tournament.md").read_text()
    play(tournament, tournament.missing(tournament.tuning()))
    assert tournament.setting("average", Panel("pathological", 2)) == Setting(0.1)  # nothing is learned at 1e-6
    for _ in range(2):  # the first seed, then what it tells to play again
        play(tournament, tournament.missing(tournament.cells()))
    again = small(tmp_path, rates=[1e-6, 0.1], skew=["pathological"])
    assert again.missing([*again.tuning(), *again.cells()]) == []
    page = write(again)
    found = {row["rule"]: row for row in csv.DictReader((tmp_path / "tournament.csv").read_text().splitlines())}
    assert set(found) == {"average", "krum"}
    for row in found.values():
        rows = [
            one for one in store.read(again.store.path, STORED) if one["rule"] == row["rule"] and one["rate"] == 0.1
        ]
        attacked = [one["accuracy"] for one in rows if one["attack"] == "sign_flip"]
        assert len(attacked) == 2
        assert float(row["worst"]) == pytest.approx(sum(attacked) / 2, abs=1e-6)
        assert (float(row["worst_low"]), float(row["worst_high"])) == pytest.approx((min(attacked), max(attacked)))
    assert "data:image/png" in page.read_text()
    assert r"\toprule" in (tmp_path / "tournament.tex").read_text()
    assert "2 rules under 1 attack, seeds 0, 1: 18 of 18 runs finished" in (tmp_path / "tournament.md").read_text()
    assert not list((tmp_path / "playing").glob("*"))


def test_twins_stand_beside_their_runs(tmp_path):
    given = {"rules": ["average"], "skew": ["iid"], "seeds": [0]}
    tournament = small(tmp_path, **given)
    assert tournament.twins(1.0) == []  # of nothing that is played
    play(tournament, tournament.missing(tournament.cells()))
    assert len(tournament.twins(0.4)) == 1
    play(tournament, tournament.missing(tournament.twins(1.0)))
    again = small(tmp_path, **given)
    assert again.missing(again.twins(1.0)) == []
    runs = {again.row(cell)["identity"] for cell in again.cells()}
    twins = {again.row(cell)["identity"] for cell in again.twins(1.0)}
    assert (len(runs), len(twins), runs & twins) == (2, 2, set())
    pairs = again.pairs([cell.labels for cell in again.cells()])
    assert {pair.label for pair in pairs.values()} == {"average, none, iid", "average, sign_flip, iid"}
    assert {row["twin"] for row in store.read(keep(again), FIELDS)} == {None, 1}
    os.utime(again.kept, (1, 1))
    keep(again)  # nothing new: the file is left alone
    assert again.kept.stat().st_mtime == 1
    page = write(again).with_suffix(".md").read_text()
    assert "Twins of 2 cells: |run - twin| median" in page
    assert "rules has none" not in page
    more = small(tmp_path, **given | {"rules": ["average", "median"]})
    assert "1 of 2 rules has none." in write(more).with_suffix(".md").read_text()


def test_rules_are_told_multiples_of_the_true_number(tmp_path):
    """Two attack.  A multiple of 1 is no other cell; where nobody attacks, a wrong number is told, too."""
    given = {"rules": ["trimmed_mean"], "skew": ["iid"], "seeds": [0]}
    plain, tournament = small(tmp_path / "plain", **given), small(tmp_path, **given, told=[0.0, 0.75, 1.0])
    cells = tournament.cells()
    assert [(c.labels.attack, checked(c.command).aggregator.f) for c in cells] == [
        (attack, f) for f in (0, 2, 2) for attack in ("none", "sign_flip")
    ]
    assert [c.command for c in cells[4:]] == [c.command for c in plain.cells()]
    play(tournament, tournament.missing(cells))
    assert small(tmp_path, **given, told=[0.0, 0.75, 1.0]).missing(cells) == []
    text = write(tournament).with_suffix(".md").read_text()
    assert "Rules are told 0, 0.75, 1 times the number of Byzantine clients." in text
    assert "iid, 2 Byzantine clients, told 0" in text
    axes = draw(tournament, panels_of(tournament))["told"][-1].axes[0]
    lines = {line.get_label(): line.get_xydata() for line in axes.lines}
    assert lines["theory's least kappa"].tolist() == [[0.75, 2 / 6], [1.0, 2 / 6]]
    assert lines["trimmed_mean"][:, 0].tolist() == [0.0, 0.75, 1.0]


def test_the_rate_is_the_best_on_validation_samples_in_the_mean_over_the_tuning_attacks(tmp_path):
    """0.6, 0.55 and 0.475: a run that diverged counts as 0.  Test samples, and the last attack alone, prefer 0.5."""
    base = ["model=logistic", "data.validation_share=0.1"]
    rules, rates = {"krum": ["aggregator=krum"]}, [0.1, 0.5, 1.0]
    tournament = Tournament(Entries(rules, ["none"], ["iid"], [2], (3, 4), rates, ["none", "lie"], base), tmp_path)
    validated = dict(zip(rates, [{"none": 0.9, "lie": 0.3}, {"none": 0.6, "lie": 0.5}, {"none": 0.95}], strict=True))
    assert len(tournament.tuning()) == 6
    for cell in tournament.tuning():
        assert cell.seed == 3
        assert tournament.setting("krum", Panel("iid", 2)) is None
        share = validated[cell.labels.rate].get(cell.labels.attack)
        row = {"status": "completed" if share else "diverged", "validation_accuracy": share}
        tournament.records[tournament.key(cell)] = row | {"accuracy": None if share is None else 1 - share}
    assert tournament.setting("krum", Panel("iid", 2)) == Setting(0.1)
    assert {cell.labels.rate for cell in tournament.cells()} == {0.1}


def test_rates_that_cost_much_where_nobody_attacks_are_not_tried_under_attack(tmp_path):
    """0.1 loses 2 points; of the others, 0.5 is better under the attack."""
    rules, rates, tuning = {"krum": ["aggregator=krum"]}, [0.1, 0.5, 1.0], ["none", "lie"]
    cost = Entries.choose().cost
    entries = Entries(rules, ["none"], ["iid"], [2], (3, 4), rates, tuning, ["model=logistic"], cost=cost)
    tournament, panel = Tournament(entries, tmp_path), Panel("iid", 2)
    validated = {("none", 0.1): 0.88, ("none", 0.5): 0.895, ("none", 1.0): 0.9, ("lie", 0.5): 0.5, ("lie", 1.0): 0.4}
    following = []
    while cells := tournament.missing(tournament.tuning()):
        assert tournament.setting("krum", panel) is None
        following.append(tournament.tuning_following)
        for cell in cells:
            share = validated.pop((cell.labels.attack, cell.labels.rate))
            tournament.records[tournament.key(cell)] = {"status": "completed", "validation_accuracy": share}
    assert not validated
    assert following == [3, 0]  # all three rates under the attack, at most
    assert tournament.setting("krum", panel) == Setting(0.5)


def test_the_radius_of_a_rule_that_has_one_is_chosen_with_its_rate(tmp_path):
    """Of 0.1 and 1, both at 0.5, 1 is worse under attack; at 0.1 both cost more than 1 % without one."""
    rules = {"huber": ["aggregator=huber"], "huber 3": ["aggregator=huber", "aggregator.radius=3"]}
    rules |= {"krum": ["aggregator=krum"], "mine": ["aggregator=centred_clipping", "client=momentum"]}
    settings = {"tuning": ["none", "lie"], "base": ["model=logistic"], "cost": 0.01, "radii": [0.1, 1]}
    entries = Entries(rules, ["none", "lie"], ["iid"], [2], (3, 4), [0.1, 0.5], **settings)
    every = [Setting(0.1, 0.1), Setting(0.1, 1), Setting(0.5, 0.1), Setting(0.5, 1)]
    assert entries.settings("huber") == entries.settings("mine") == every
    assert entries.settings("huber 3") == entries.settings("krum") == [Setting(0.1), Setting(0.5)]

    tournament, panel = Tournament(entries, tmp_path), Panel("iid", 2)
    validated = {("none", 0.1, 0.1): 0.7, ("none", 0.1, 1): 0.8, ("none", 0.5, 0.1): 0.895, ("none", 0.5, 1): 0.9}
    validated |= {("lie", 0.5, 0.1): 0.6, ("lie", 0.5, 1): 0.5}
    while cells := [one for one in tournament.missing(tournament.tuning()) if one.labels.rule == "huber"]:
        for cell in cells:
            share = validated.pop((cell.labels.attack, cell.labels.rate, cell.labels.radius))
            config = checked(cell.command)
            assert (config.server.lr, config.aggregator.radius) == (cell.labels.rate, cell.labels.radius)
            tournament.add(cell, {"status": "completed", "validation_accuracy": share, "identity": cell.title})
    assert not validated
    again = Tournament(entries, tmp_path)  # from cells.csv
    assert again.setting("huber", panel) == Setting(0.5, 0.1)
    (standing,) = [one for one in panels_of(again)[panel] if one.rule == "huber"]
    assert row_of(standing)[2] == "0.5, radius 0.1"
    said = "Rules that have a radius have it chosen with the rate, in the same way, from 0.1, 1."
    assert said in introduction(again)[0]
    alone = Tournament(replace(entries, rates=[0.5], radii=[2.0]), tmp_path)
    assert "rate is 0.5 for all. The radius of rules that have one is 2." in introduction(alone)[0]
    without = Tournament(replace(entries, rules={"krum": rules["krum"]}), tmp_path)
    assert "radius" not in introduction(without)[0]
    at_its_own = checked(Tournament(replace(entries, radii=[1]), tmp_path).tuning()[0].command)
    assert identity(at_its_own) == identity(
        checked(Tournament(replace(entries, radii=()), tmp_path).tuning()[0].command)
    )


def test_a_radius_that_is_chosen_is_not_given():
    with pytest.raises(SettingError, match=r"give --radii in place of aggregator\.radius=2"):
        Entries.choose(["huber"], more=["aggregator.radius=2"], protocol="2026.3")
    given = Entries.choose(["huber"], more=["aggregator.radius=2"], protocol="2026.1")
    assert given.settings("huber") == [Setting(rate) for rate in given.rates]
    assert Entries.choose(["huber"], radii=[2.0], rates=[0.1], protocol="2026.1").settings("huber") == [
        Setting(0.1, 2.0)
    ]


def test_runs_of_an_earlier_protocol_with_the_same_settings_count_and_are_kept_once(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TABLES", tmp_path)
    row = dict.fromkeys(FIELDS) | {"attack": "none", "skew": "iid", "byzantine": 15, "rate": 0.3, "seed": 0}
    row |= {"status": "completed", "validation_accuracy": 0.5, "accuracy": 0.5, "identity": "x"}
    before = [row | {"rule": rule} for rule in ("krum", "huber")]
    store.write(tmp_path / "tournament_2026.1.csv", FIELDS, before)
    chosen = Entries.choose(["krum", "huber"], ["ipm"], protocol="2026.3")
    tournament = Tournament(chosen, tmp_path / "played")
    tuning = {
        rule: [cell for cell in tournament.tuning() if cell.labels[:3] == (rule, "none", "iid")]
        for rule in ("krum", "huber")
    }
    assert [cell.labels.rate for cell in tuning["krum"] if tournament.row(cell)] == [0.3]
    assert not any(tournament.row(cell) for cell in tuning["huber"])  # kept without a radius: another cell
    mine = next(cell for cell in tuning["huber"] if cell.labels.radius == 3)
    tournament.add(mine, row | {"version": "1"})
    kept = store.read(keep(tournament), FIELDS)
    assert [(one["rule"], one["radius"]) for one in kept] == [("huber", 3.0)]
    assert Tournament(chosen, tmp_path / "again").row(mine)["identity"] == "x"
    other = Tournament(Entries.choose(["krum"], ["ipm"], protocol="2026.1-labels"), tmp_path / "played")
    assert not other.records  # another base


def test_what_is_taken_from_a_run(monkeypatch):
    kappas = {"mean": 0.5, "max": 2.0, "infinite_rounds": 0, "bound": None}
    summary = saved.SUMMARY | {"accuracy": 0.75, "recall": [1.0, 0.25, None], "validation_accuracy": 0.625}
    summary |= {"robustness": kappas, "n_classes": 3, "seconds": 9.0, "attack": {"success_rate": 0.75}}
    rows = [{"seconds/aggregator": seconds, "seconds/clients": 1.0} for seconds in (0.001, 0.003)]
    monkeypatch.setattr("lightning_fl.run.fit.fit_in_memory", lambda config, stop: (summary, rows))
    overrides = ["model=logistic"]
    assert module.result(overrides) == {
        "identity": identity(checked(overrides)),
        "status": "completed",
        "stopped": None,
        "reason": None,
        "accuracy": 0.75,
        "worst_recall": 0.25,
        "validation_accuracy": 0.625,
        "kappa": 0.5,
        "rule_ms": pytest.approx(2.0),
        "seconds": 9.0,
        "classes": 3,
        "success": 0.75,
    }


def test_a_run_may_have_rounds_for_which_nobody_was_drawn(monkeypatch):
    summary, rows = saved.SUMMARY | {"accuracy": 0.75, "recall": [1.0, 0.25]}, [{"learning_rate": 0.1}]
    monkeypatch.setattr("lightning_fl.run.fit.fit_in_memory", lambda config, stop: (summary, rows))
    assert module.result(["model=logistic"])["rule_ms"] is None
    rows.append({"seconds/aggregator": 0.004})
    assert module.result(["model=logistic"])["rule_ms"] == pytest.approx(4.0)


def test_a_run_is_found_by_its_settings_and_a_refused_one_is_told(tmp_path):
    tournament = small(tmp_path, rules=["bulyan"], skew=["iid"], seeds=[0])  # needs n >= 4f + 3 = 11 of 10
    tournament.check(Runner(), "x")
    row, _ = play(tournament, tournament.cells())
    assert row["status"] == "refused"
    assert len(tournament.cells()) == 1  # the other attacks need not be tried
    assert "n >= 4f + 3" in row["reason"]
    again = small(tmp_path, rules=["bulyan"], skew=["iid"], seeds=[0])
    assert again.missing(again.cells()) == []
    other = small(tmp_path, rules=["bulyan"], skew=["iid"], seeds=[0], byzantine=[1])
    assert len(other.missing(other.cells())) == 2
    assert "bulyan cannot be run" in write(again).read_text()
    assert "\n  bulyan cannot be run: " in terminal(again)


def test_a_degree_of_skew_is_played_once(tmp_path):
    assert small(tmp_path, skew=["0.1", "iid", "1e-1", "0.10"]).entries.skew == ["0.1", "iid"]


def test_what_another_process_plays_is_left_to_it(tmp_path):
    tournament = small(tmp_path, rules=["average"], skew=["iid"], seeds=[0])
    cell = tournament.cells()[0]
    (tmp_path / "playing").mkdir()
    with FileLock(tmp_path / "playing" / f"{tournament.key(cell)}.lock"):
        assert play(tournament, [cell]) == [None]
    assert store.read(tournament.store.path, []) == []


def test_a_signal_that_ends_a_run_ends_the_tournament(tmp_path, monkeypatch):
    """With one worker the run itself hears it, and says so."""
    played, stopped = [], {"status": "interrupted", "reason": "stopped by SIGTERM"}
    monkeypatch.setattr(module, "result", lambda *given: played.append(given) or stopped)
    tournament = small(tmp_path)
    with pytest.raises(KeyboardInterrupt, match="stopped by SIGTERM"):
        play(tournament, tournament.cells())
    assert len(played) == 1
    assert not tournament.records
    assert not list((tmp_path / "playing").iterdir())


def test_a_signal_in_the_last_round_ends_the_tournament_too(tmp_path, monkeypatch):
    class Last(Median):
        def on_train_end(self, *_):
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(median, "Median", Last)
    tournament = small(tmp_path, rules=["median"], skew=["iid"], seeds=[0])
    with pytest.raises(KeyboardInterrupt, match="stopped by SIGTERM"):
        play(tournament, tournament.cells())
    assert [row["status"] for row in store.read(tournament.store.path, [])] == ["completed"]
    assert not list((tmp_path / "playing").iterdir())


def killed(*_):
    signal.raise_signal(signal.SIGKILL)


def test_a_killed_worker_costs_its_run_alone(monkeypatch, tmp_path):
    """As the kernel does where memory runs out."""
    monkeypatch.setattr(module, "_played", killed)  # by name: workers import it
    tournament = small(tmp_path)
    rows = list(tournament.play(tournament.cells(), Runner(2), "1.2.3"))
    assert {row["rule"] for row in rows} == {"average", "krum"}
    assert [row["status"] for row in rows] == ["failed"] * len(tournament.cells())
    assert "its process was killed" in rows[0]["reason"]
    assert store.read(tournament.store.path, STORED) == []
    assert not list((tmp_path / "playing").iterdir())


def test_what_was_refused_has_no_points_and_no_twin(tmp_path):
    tournament = small(tmp_path, skew=["iid"], seeds=[0])
    clean, attacked, *others = tournament.cells()
    result = {"status": "completed", "accuracy": 0.5, "identity": "x"}
    for cell in [clean, *others]:
        tournament.add(cell, result)
    tournament.add(attacked, {"status": "refused", "reason": "too few"})
    assert tournament.points(attacked.labels, 0) is None
    assert tournament.points(clean.labels, 0) == 50
    assert {cell.labels for cell in tournament.twins(1.0)} == {cell.labels for cell in [clean, *others]}


def test_an_error_in_ones_own_rule_costs_its_runs_alone(tmp_path, monkeypatch):
    class Broken(Median):
        def aggregate(self, updates, server):
            raise ZeroDivisionError("no\nrows")

    monkeypatch.setattr(median, "Median", Broken)
    tournament = small(tmp_path, rules=["median", "average"], skew=["iid"], seeds=[0])
    rows = play(tournament, tournament.cells())
    assert [(row["rule"], row["status"]) for row in rows] == [("median", "failed")] * 2 + [("average", "completed")] * 2
    assert rows[0]["reason"] == "ZeroDivisionError: no rows"
    assert "raise ZeroDivisionError" in rows[0]["trace"]
    again = small(tmp_path, rules=["median", "average"], skew=["iid"], seeds=[0])
    assert [cell.labels.rule for cell in again.missing(again.cells())] == ["median"] * 2
    assert not list((tmp_path / "playing").iterdir())


def test_a_diverged_run_knows_its_classes():
    overrides = [
        "data=synthetic",
        "data.classes=4",
        "model.n_classes=4",
        *SMALL,
        "federation.n_byzantine=1",
        "adversary=non_finite",
    ]
    row = module.result(overrides)
    assert (row["status"], row["classes"]) == ("diverged", 4)


def test_an_attack_that_cannot_be_run_leaves_the_others(tmp_path):
    tournament = small(tmp_path, attacks=["sign_flip", "badnets"], skew=["iid"], seeds=[0])
    tournament.check(Runner(), "x")
    assert {cell.labels.attack for cell in tournament.cells()} == {"none", "sign_flip"}
    play(tournament, tournament.cells())
    page = write(tournament).read_text()
    assert "badnets cannot be run: a backdoor needs Byzantine clients with data" in page
    for one in standings(tournament, Panel("iid", 2)):
        row = tournament.row(tournament.cell(Place(one.rule, "sign_flip", "iid", 2, 0.1), 0))
        assert one.rank is not None
        assert one.worst.mean == row["accuracy"]


@pytest.mark.parametrize(("protocol", "attack"), [("2026.1-labels", "label_flip_pair"), ("2026.1-backdoor", "dba")])
def test_a_league_s_attackers_have_what_they_poison(protocol, attack, tmp_path):
    entries = Entries.choose(protocol=protocol)
    assert attack in entries.attacks
    assert module._possible(Tournament(entries, tmp_path)._plain(attack, 15))[1] is None


def test_what_this_machine_lacks_is_no_result(tmp_path):
    more = [*SMALL, f"updates_dir={tmp_path / 'missing'}"]
    tournament = small(tmp_path, rules=["average"], skew=["iid"], seeds=[0], attacks=[], more=more)
    with pytest.raises(MissingError, match="updates_dir needs a folder"):
        play(tournament, tournament.cells())
    assert store.read(tournament.store.path, []) == []
    (tmp_path / "missing").mkdir()
    assert play(tournament, tournament.missing(tournament.cells()))[0]["status"] == "completed"


@pytest.mark.parametrize("skew", ["0", "nan", "inf", "-1"])
def test_skew_is_above_0(tmp_path, skew):
    with pytest.raises(SettingError, match=f"--skew needs Dirichlet's alpha above 0 and finite, .*, got {skew}"):
        small(tmp_path, skew=[skew])


def test_a_rate_is_not_chosen_without_validation_samples(tmp_path):
    tournament = small(
        tmp_path,
        rules=["average"],
        skew=["iid"],
        seeds=[0],
        rates=[0.1, 0.5],
        added=["mine: data.validation_share=null"],
    )
    play(tournament, tournament.tuning())
    with pytest.raises(SettingError, match="mine needs validation samples to choose its rate, got none"):
        tournament.cells()


def test_the_picture_counts_the_attacks_that_could_be_run(tmp_path):
    tournament = small(tmp_path, rules=["average"], attacks=["sign_flip", "badnets"], seeds=[0])
    tournament.check(Runner(), "x")
    play(tournament, tournament.cells())
    picture = draw(tournament, panels_of(tournament))["skew"][0]
    title = " ".join(picture.axes[0].get_title().split())
    assert title == "The 1 rule with the best worst case: 2 Byzantine clients, 1 attack, 1 seed"


def test_what_an_equal_run_has_measured_is_taken_over(tmp_path):
    """Here of another label, as in a file of before there were keys."""
    tournament = small(tmp_path, rules=["average"], skew=["iid"], seeds=[0])
    played = play(tournament, tournament.cells())
    again = small(tmp_path, rules=[], added=["mine: aggregator=average"], skew=["iid"], seeds=[0])
    rows = play(again, again.missing(again.cells()))
    assert [row["rule"] for row in rows] == ["mine"] * 2
    same = [{key: row[key] for key in ("seconds", "accuracy", "identity")} for row in rows]
    assert all(row in [{key: one[key] for key in row} for one in played] for row in same)


def test_the_cells_of_an_edited_rule_are_played_anew_and_no_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "conf" / "aggregator").mkdir(parents=True)
    for name in ("mine_a", "mine_b"):
        (tmp_path / "conf" / "aggregator" / f"{name}.yaml").write_text(f"_target_: {name}.Mine\n")
        (tmp_path / f"{name}.py").write_text("from lightning_fl.aggregator.median import Median as Mine\n")

    def cup():
        return small(tmp_path / "cup", rules=["median", "mine_a", "mine_b"], skew=["iid"], seeds=[0], attacks=[])

    tournament = cup()
    for cell in tournament.cells():
        tournament.store.path.parent.mkdir(exist_ok=True)
        tournament.store.begin()
        row = cell.labels._asdict() | {"seed": 0, "status": "completed", "identity": cell.labels.rule}
        tournament.store.add(row | {"key": tournament.key(cell)})
    assert cup().missing(cup().cells()) == []
    with (tmp_path / "mine_a.py").open("a") as file:
        file.write("# edited\n")
    assert [cell.labels.rule for cell in cup().missing(cup().cells())] == ["mine_a"]
    (tmp_path / "conf" / "aggregator" / "mine_b.yaml").write_text("_target_: mine_b.Mine\nmiddle: lower\n")
    assert {cell.labels.rule for cell in cup().missing(cup().cells())} == {"mine_a", "mine_b"}
