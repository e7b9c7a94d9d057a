"""Standings from results made by hand."""

from dataclasses import replace
from itertools import product
from statistics import mean

import pytest

from lightning_fl.study.standings import Estimate, standings
from lightning_fl.study.tournament import Entries, Panel, Tournament
from lightning_fl.study.tournament_report import _section, draw, introduction, remarks

RULES = {name: [f"aggregator={name}"] for name in ("average", "median", "krum")}


@pytest.fixture
def tournament(tmp_path):
    """Of three rules and two attacks."""
    entries = Entries(RULES, ["none", "ipm", "lie"], ["iid"], [3], (0, 1, 2), [0.1], ["none"], ["model=logistic"])
    return Tournament(entries, tmp_path)


@pytest.fixture
def played(tournament):
    """Give it results, by rule, attack and seed."""

    def make(outcome):
        for cell in tournament.cells():
            came = outcome(cell.labels.rule, cell.labels.attack, cell.seed)
            if came is not None:
                tournament.records[tournament.key(cell)] = row(came)
        return standings(tournament, Panel("iid", 3))

    return make


def row(came):
    """What a run leaves that came out as an accuracy, diverged or refused."""
    names = ["accuracy", "worst_recall", "kappa", "rule_ms", "classes", "success", "identity", "seconds", "version"]
    nothing = dict.fromkeys(names)
    if came == "refused":
        return {**nothing, "status": "refused", "reason": "too few"}
    if came == "diverged":
        return {**nothing, "status": "diverged", "classes": 10, "rule_ms": 2.0}
    measured = nothing | {"accuracy": came, "worst_recall": came / 2, "kappa": 10 * came, "rule_ms": 2.0, "classes": 10}
    return {**measured, "status": "completed"}


@pytest.mark.parametrize("values", [[0.1, 0.5, 0.9], [0.2, 0.2, 0.8, 0.4]])
def test_the_interval_is_that_of_all_resamples(values):
    n = len(values)
    means = sorted(mean(drawn) for drawn in product(values, repeat=n))
    beyond = 0.025 * len(means)
    estimate = Estimate.of(values)
    assert estimate.mean == pytest.approx(mean(values))
    assert sum(value < estimate.low - 1e-12 for value in means) <= beyond
    assert sum(value > estimate.high + 1e-12 for value in means) <= beyond
    # and no narrower one does
    inner = [value for value in means if estimate.low + 1e-12 < value]
    assert sum(value < inner[0] - 1e-12 for value in means) > beyond or inner[0] > estimate.mean


def test_of_many_seeds_the_interval_is_drawn_and_the_same_every_time():
    values = [0.01 * k for k in range(20)]
    estimate = Estimate.of(values)
    assert estimate == Estimate.of(values)
    assert 0.05 < estimate.low < 0.095 < estimate.high < 0.14  # mean 0.095, its deviation 0.0129
    assert Estimate.of([]) is None


def test_a_backdoor_s_success_is_shown_where_there_is_one(tournament, played):
    """The mean over seeds, of the attack that succeeds most."""
    panel = Panel("iid", 3)
    assert "Backdoor" not in _section(panel, played(lambda rule, attack, seed: 0.9)).header
    for cell in tournament.cells():
        if cell.labels.rule == "krum" and cell.labels.attack != "none":
            success = {"ipm": [0.2, 0.3, 0.4], "lie": [0.0, 0.0, 0.5]}[cell.labels.attack][cell.seed]
            tournament.records[tournament.key(cell)]["success"] = success
    found = standings(tournament, panel)
    assert {one.rule: one.success for one in found} == {"average": None, "median": None, "krum": pytest.approx(0.3)}
    table = _section(panel, found)
    assert table.header[-1] == "Backdoor"
    assert {row[-1] for row in table.rows} == {"-", "30.0"}


def test_the_worst_attack_is_taken_in_each_seed(played):
    table = {("ipm", 0): 0.5, ("lie", 0): 0.7, ("ipm", 1): 0.8, ("lie", 1): 0.6, ("ipm", 2): 0.4, ("lie", 2): 0.9}
    best, *_ = played(lambda rule, attack, seed: 0.95 if attack == "none" else table[attack, seed])
    assert best.worst.mean == pytest.approx((0.5 + 0.6 + 0.4) / 3)
    assert (best.worst.low, best.worst.high) == pytest.approx((0.4, 0.6))
    assert best.attack == "ipm"  # mean 0.567, LIE 0.733
    assert best.clean.mean == pytest.approx(0.95)
    assert best.worst_recall.mean == pytest.approx(0.25)
    assert best.kappa == pytest.approx(10 * (0.7 + 0.6 + 0.9) / 3)
    assert (best.played, best.planned) == (9, 9)


def test_kappa_and_time_are_means_over_all_runs(played, tournament):
    """IPM leaves kappas of 0, 2 and 4, LIE of 1; the rule took 0 to 8 ms in its nine runs."""
    played(lambda rule, attack, seed: {"ipm": 0.2 * seed, "lie": 0.1}.get(attack, 0.9))
    for ms, cell in enumerate(cell for cell in tournament.cells() if cell.labels.rule == "krum"):
        tournament.row(cell)["rule_ms"] = float(ms)
    krum = next(one for one in standings(tournament, Panel("iid", 3)) if one.rule == "krum")
    assert (krum.kappa, krum.rule_ms) == pytest.approx((2, 4))


def test_a_rule_ranks_behind_those_that_are_better_at_every_seed(played):
    """However much the seeds differ: all rules of a seed have the same data."""
    level = {"average": [0.2, 0.2, 0.9], "median": [0.60, 0.62, 0.64], "krum": [0.61, 0.63, 0.65]}
    found = played(lambda rule, attack, seed: level[rule][seed])
    assert [(one.rule, one.rank) for one in found] == [("krum", 1), ("median", 2), ("average", 1)]
    assert {one.rule: one.dominated_by for one in found} == {"krum": (), "median": ("krum",), "average": ()}
    shown = remarks(found)[:2]
    assert shown[0] == "Rank 1: krum, average (no rule is ahead of any of these at every seed)."
    assert shown[1].endswith("at every seed: median.")


def test_rules_that_are_equal_at_a_seed_tie(played):
    """And dominate all the same, if they are never worse and better once."""
    first = {"average": [0.1, 0.1, 0.1], "median": [0.1, 0.05, 0.02], "krum": [0.1, 0.2, 0.3]}
    found = played(lambda rule, attack, seed: first[rule][seed])
    assert {one.rule: one.rank for one in found} == {"krum": 1, "average": 1, "median": 1}
    dominated = {one.rule: set(one.dominated_by) for one in found}
    assert dominated == {"krum": set(), "average": {"krum"}, "median": {"krum", "average"}}


def test_rules_are_compared_at_the_seeds_that_both_have_played(played):
    """Of the median seeds 0 and 1 are whole, of krum 1 and 2, of averaging 0."""
    level = {"average": [0.9, None, None], "median": [0.3, 0.8, None], "krum": [None, 0.7, 0.9]}
    found = {one.rule: one for one in played(lambda rule, attack, seed: level[rule][seed])}
    assert {rule: one.rank for rule, one in found.items()} == {"average": 1, "median": 2, "krum": 2}
    assert {rule: one.dominated_by for rule, one in found.items()} == {
        "average": (),
        "median": ("average",),
        "krum": ("median",),
    }


def test_seeds_with_fewer_attacks_are_counted(tmp_path):
    """The median meets IPM alone at seed 1, the others both attacks."""
    level = {"none": 0.9, "ipm": 0.2, "lie": 0.3}
    entries = Entries(RULES, [*level], ["iid"], [3], (0, 1), [0.1], ["none"], [], again=0.5)
    tournament = Tournament(entries, tmp_path)
    said = "of the accuracy that the worst one costs there, and the one that did most to a class"
    assert f"{said}. Where another" in introduction(tournament)[0]
    for _ in range(2):  # the first seed, then the other
        for cell in tournament.cells():
            spared = (cell.labels.rule, cell.labels.attack) == ("median", "lie")
            tournament.records[tournament.key(cell)] = row(0.8 if spared else level[cell.labels.attack])
    assert f"{said}: 1 to 2 of 2, 2 in the median. Where another" in introduction(tournament)[0]
    cell = next(cell for cell in tournament.cells() if cell.labels.rule == "median" and cell.seed == 1)
    lie = tournament.cell(cell.labels._replace(attack="lie"), 1)  # by hand: nothing is left out now
    tournament.records[tournament.key(lie)] = row(0.8)
    assert said not in introduction(tournament)[0]


def test_what_is_better_without_attack_is_not_dominated(played):
    clean = {"average": 0.95, "median": 0.8, "krum": 0.9}
    worst = {"average": 0.1, "median": 0.5, "krum": 0.6}
    found = {o.rule: o for o in played(lambda rule, attack, _: (clean if attack == "none" else worst)[rule])}
    assert {rule: one.dominated_by for rule, one in found.items()} == {
        "average": (),
        "krum": (),
        "median": ("krum",),
    }


def test_a_diverged_run_counts_as_guessing_and_a_refused_rule_has_no_rank(played):
    def value(rule, attack, seed):
        return "refused" if rule == "krum" else "diverged" if (rule, attack) == ("average", "ipm") else 0.9

    found = {one.rule: one for one in played(value)}
    assert found["average"].worst.mean == pytest.approx(0.1)
    assert found["average"].worst_recall.mean == 0
    assert (found["krum"].refused, found["krum"].rank, found["krum"].worst) == ("too few", None, None)


def test_an_attack_refused_for_one_rule_leaves_it_the_others(played):
    found = {
        one.rule: one
        for one in played(
            lambda rule, attack, seed: "refused" if (rule, attack) == ("krum", "ipm") else 0.5 + 0.1 * (rule == "krum")
        )
    }
    assert found["krum"].left_out == {"ipm": "too few"}
    assert found["krum"].worst.mean == 0.6
    assert [found[rule].rank for rule in ("krum", "median", "average")] == [1, 2, 2]
    assert found["median"].dominated_by == ()  # krum has met fewer attacks
    assert remarks(list(found.values()))[-1] == "ipm cannot be run against krum: too few"


def test_attacks_refused_for_the_same_reason_are_named_together(played):
    found = played(lambda rule, attack, seed: 0.5 if attack == "none" else "refused")
    left = sorted({attack for one in found for attack in one.left_out})
    assert len(left) > 1
    assert [line for line in remarks(found) if "run" in line] == [f"{', '.join(left)} cannot be run: too few"]


@pytest.mark.parametrize(("cruel", "again"), [("ipm", ["ipm", "lie"]), ("mimic", ["ipm", "lie", "mimic"])])
def test_further_seeds_play_what_came_close_and_what_does_most_to_a_class(tmp_path, cruel, again):
    """IPM costs 35 points, LIE 26 and Mimic 5; Mimic counts where it takes a class away."""
    level = {"none": 0.95, "ipm": 0.6, "lie": 0.69, "mimic": 0.9}
    rules = {"krum": RULES["krum"]}
    entries = Entries(rules, list(level), ["iid"], [3], (0, 1, 2), [0.1], ["none"], ["model=logistic"], again=0.7)
    tournament = Tournament(entries, tmp_path)

    def play():
        cells = tournament.cells()
        for cell in cells:
            recall = 0.0 if cell.labels.attack == cruel else 0.3
            tournament.records[tournament.key(cell)] = {**row(level[cell.labels.attack]), "worst_recall": recall}
        return [(cell.labels.attack, cell.seed) for cell in cells]

    assert tournament.size == 12
    first = [(attack, 0) for attack in level]
    assert play() == first
    everything = first + [(attack, seed) for seed in (1, 2) for attack in ["none", *again]]
    assert play() == everything
    assert tournament.size == len(everything)
    (one,) = standings(tournament, Panel("iid", 3))
    assert (one.worst.mean, one.attack) == (pytest.approx(0.6), "ipm")
    assert one.worst_recall.mean == 0
    assert one.played == one.planned == len(everything)
    known = tournament.cell(tournament.cells()[0].labels._replace(attack="mimic"), 1)  # by an earlier screening
    tournament.records[tournament.key(known)] = row(0.2)
    (one,) = standings(tournament, Panel("iid", 3))
    assert one.worst_by_seed == pytest.approx({0: 0.6, 1: 0.2, 2: 0.6})
    assert one.planned == len(everything) + (cruel == "ipm")


@pytest.mark.parametrize(
    ("level", "again"),
    [
        # BadNets cannot be run: that is no accuracy of 10 %, beside which nothing else would come close.
        ({"none": 0.95, "ipm": 0.6, "lie": 0.69, "mimic": 0.9, "badnets": "refused"}, ["ipm", "lie"]),
        # Every attack leaves more than none does: the one that leaves least is played again all the same.
        ({"none": 0.5, "ipm": 0.6, "lie": 0.7}, ["ipm", "lie"]),
    ],
)
def test_what_comes_close_is_told_by_the_attacks_that_were_run(tmp_path, level, again):
    entries = Entries({"krum": RULES["krum"]}, list(level), ["iid"], [3], (0, 1), [0.1], ["none"], [], again=0.7)
    tournament = Tournament(entries, tmp_path)
    for cell in tournament.cells():
        refused, last = level[cell.labels.attack] == "refused", cell.labels.attack == again[1]
        recall = {} if refused else {"worst_recall": 0.3 - 0.1 * last}
        tournament.records[tournament.key(cell)] = row(level[cell.labels.attack]) | recall
    assert [cell.labels.attack for cell in tournament.cells() if cell.seed == 1] == ["none", *again]


def test_an_attack_of_one_seed_is_no_worst_of_all(played, tournament):
    """IPM leaves 50, 90 and 90 %, LIE 70 % at its only seed: the least mean, of which little is known."""
    tournament.entries = replace(tournament.entries, again=0.6)
    for _ in range(2):  # the first seed, then the others
        found = played(lambda rule, attack, seed: {"none": 0.95, "lie": 0.7}.get(attack, 0.9 if seed else 0.5))
    assert all(one.attack == "ipm" and one.worst_by_seed == {0: 0.5, 1: 0.9, 2: 0.9} for one in found)


def test_seeds_with_attacks_still_to_be_played_do_not_count(played):
    found = played(lambda rule, attack, seed: None if (attack, seed) == ("lie", 1) else 0.9 - 0.1 * seed)
    assert all(one.worst.mean == pytest.approx(0.8) and one.played == 8 for one in found)  # of seeds 0 and 2


def test_without_an_attack_every_seed_counts(played):
    """The last one, too, in which LIE is still to be played."""
    found = played(lambda rule, attack, seed: None if (attack, seed) == ("lie", 2) else 0.9 - 0.1 * seed)
    assert all((one.clean.mean, one.worst.mean) == pytest.approx((0.8, 0.85)) for one in found)


def test_an_attack_refused_at_one_seed_costs_that_seed_alone(played):
    """And is named, so that the rule does not dominate one that met it at every seed."""

    def value(rule, attack, seed):
        return "refused" if (rule, attack, seed) == ("krum", "ipm", 2) else {"ipm": 0.1, "lie": 0.5}.get(attack, 0.9)

    found = {one.rule: one for one in played(value)}
    krum = found["krum"]
    assert krum.left_out == {"ipm": "too few (seed 2)"}
    assert "krum" not in found["median"].dominated_by
    assert krum.worst_by_seed == {0: 0.1, 1: 0.1}
    assert krum.worst.mean == pytest.approx(0.1)
    assert krum.played == 9


def test_the_heat_map_shows_the_standings_numbers(tournament, played):
    """Of 0.1, 0.1 and 0.7 the mean is 0.3; the interval's ends say nothing about how much seeds differ."""
    worst = {("krum", 2): 0.7, ("median", 0): 0.32, ("median", 1): 0.32, ("median", 2): 0.32}
    found = played(lambda rule, attack, seed: 0.9 if attack == "none" else worst.get((rule, seed), 0.1))
    (figure,) = draw(tournament, {Panel("iid", 3): found})["heat_iid_3"]
    axes = figure.axes[0]
    rows = [label.get_text() for label in axes.get_yticklabels()]
    column = [label.get_text() for label in axes.get_xticklabels()].index("worst")
    shown = {rows[int(text.get_position()[1])]: text for text in axes.texts if text.get_position()[0] == column}
    assert {rule: text.get_text() for rule, text in shown.items()} == {"median": "32", "krum": "30*", "average": "10"}


def test_a_refused_rule_comes_last(played):
    found = played(lambda rule, attack, seed: "refused" if rule == "average" else 0.9)
    assert [one.rule for one in found] == ["krum", "median", "average"]
