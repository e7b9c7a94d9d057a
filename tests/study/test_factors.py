"""Names of many runs from few compositions."""

from itertools import product

from lightning_fl.run.check import checked
from lightning_fl.run.identity import identity
from lightning_fl.study.factors import Factors

SEEDS = {"1": ["seed=1"], "2": ["seed=2"]}


def names_are_those_of_composed_runs(factors):
    runs = Factors(["model=logistic"], factors)
    for combined in product(*factors.values()):
        chosen = dict(zip(factors, combined, strict=True))
        assert runs.name(chosen) == identity(checked(runs.overrides(chosen))), chosen


def test_choices_that_depend_on_each_other_are_composed_together():
    """Krum's f follows another factor; so does, whatever comes first, the seed of a rule that has one."""
    rules = {
        "average": ["aggregator=average"],
        "krum": ["aggregator=krum"],
        "krum, f": ["aggregator=krum", "aggregator.f=${seed}"],
    }
    for ordered in [rules, dict(reversed(rules.items()))]:
        names_are_those_of_composed_runs({"f": {"1": ["f=1"], "2": ["f=2"]}, "rule": ordered, "seed": SEEDS})


def test_a_choice_that_writes_the_same_value_otherwise_is_a_change():
    """At seed 1 both rules have the same f; only one of them follows the seed."""
    rules = {"a": ["aggregator=krum", "aggregator.f=${seed}"], "b": ["aggregator=multi_krum", "aggregator.f=1"]}
    names_are_those_of_composed_runs({"seed": SEEDS, "rule": rules})


def test_a_reference_relative_to_its_own_place_may_be_to_anything():
    rules = {"a": ["aggregator=zeno"], "b": ["aggregator=zeno", "aggregator.rho=${..server.lr}"]}
    names_are_those_of_composed_runs({"rate": {"1": ["server.lr=1"], "2": ["server.lr=2"]}, "rule": rules})
