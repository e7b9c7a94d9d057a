"""Names of many runs from few compositions."""

import shlex
from itertools import product

import pytest

from lightning_fl import SettingError
from lightning_fl.run.check import checked
from lightning_fl.run.identity import identity
from lightning_fl.study import factors
from lightning_fl.study.factors import Factors

SEED = 3
F = ["f=1", "f=2"]
ATTACKS = ["adversary=none", "adversary=ipm", "adversary=lie", ""]
NUMBERS = ["federation.n_byzantine=1", "federation.n_byzantine=2", ""]


def all_of(*groups):
    return list(product(*([tuple(shlex.split(text)) for text in group] for group in groups)))


def names_are_those_of_composed_runs(groups, base=("model=logistic",)):
    factors = Factors(base)
    for choices in all_of(*groups):
        expected = identity(checked([*factors.overrides(choices), f"seed={SEED}"]))
        assert factors.names(choices, [SEED]) == [expected], choices


@pytest.mark.parametrize("base", [["adversary=ipm"], ["adversary=none"], ["adversary=ipm", "federation.n_byzantine=0"]])
def test_without_an_attack_nobody_is_byzantine_whatever_hides_it(base):
    names_are_those_of_composed_runs([NUMBERS, ATTACKS], base)


def test_what_follows_the_number_of_attackers_does_so_without_an_attack():
    base = ["adversary=ipm", "federation.n_byzantine=0", "f=${federation.n_byzantine}"]
    names_are_those_of_composed_runs([NUMBERS, ATTACKS], base)


def test_choices_that_depend_on_each_other_are_composed_together():
    """Krum's f follows another choice; so does the seed of a rule that has one."""
    rules = ["aggregator=average", "aggregator=krum", "aggregator=krum aggregator.f=${seed}"]
    names_are_those_of_composed_runs([F, rules])


def test_the_last_of_two_overrides_of_one_setting_counts():
    """Also where the first has the value that the base has."""
    names_are_those_of_composed_runs([["f=1", "f=3"], ["", "f=3"]], ["f=3"])
    names_are_those_of_composed_runs([["f=1 server.lr=2"], ["server.lr=3"], ["f=2 server.lr=3"]])
    names_are_those_of_composed_runs(
        [["aggregator=krum", "aggregator=bulyan"], ["server.lr=1"], ["aggregator.f=2", ""]]
    )


def test_a_name_tells_a_whole_number_with_a_point_from_one_without():
    names_are_those_of_composed_runs([["server.lr=1", "server.lr=1.0"], ["", "aggregator=median"]], ["server.lr=1.0"])


def test_a_choice_that_writes_the_same_value_otherwise_is_a_change():
    """Both rules have the same f; only one of them follows another choice."""
    rules = ["aggregator=krum aggregator.f=${f}", "aggregator=multi_krum aggregator.f=1"]
    names_are_those_of_composed_runs([F, rules], ["f=1"])


@pytest.mark.parametrize("text", ["${..server.lr}", "${ server.lr }", "${[server].lr}", "${oc.select:server.lr,3}"])
def test_however_a_reference_is_written_it_is_followed(text):
    rules = ["aggregator=zeno", f"aggregator=zeno 'aggregator.rho={text}'"]
    names_are_those_of_composed_runs([["server.lr=1", "server.lr=2"], rules])


def test_a_reference_is_followed_through_settings_that_do_not_count():
    names_are_those_of_composed_runs(
        [["aggregator=zeno aggregator.rho=${checkpoint_every}"], F], ["checkpoint_every=${f}"]
    )


def test_nothing_is_told_of_a_base_with_a_reference_in_a_reference():
    """Client momentum brings client.beta, which is 0.9 as server.lr was."""
    base = ["aggregator=zeno", "aggregator.rho='${oc.select:client.beta,${server.lr}}'", "server.lr=0.9"]
    names_are_those_of_composed_runs([["client=momentum", "client=gradient"], ["server.lr=2"]], base)


def test_another_class_takes_other_settings():
    base = ["adversary=lie", "~adversary.drawn", "adversary.factor=1"]
    choices = [("adversary._target_=lightning_fl.adversary.ipm.Ipm",), ("adversary.factor=null",)]
    with pytest.raises(SettingError, match=r"adversary\.factor needs a number"):
        Factors(base).names(choices, [SEED])


def test_a_choice_that_needs_another_one_is_composed_with_it():
    """Krum needs f."""
    names_are_those_of_composed_runs([["aggregator=krum", "aggregator=average"], ["partition=iid"], F], ["f=null"])


def test_experiments_and_methods_are_a_part_of_the_base(compositions):
    """An experiment sets what columns do, too, and others do not."""
    experiments = ["experiment=boba_mnist", "experiment=raga_mnist_lenet", "method=fed_nga"]
    choices = ["", "aggregator=average", "adversary=lie", "server.lr=2", "partition.alpha=0.2 partition=dirichlet"]
    names_are_those_of_composed_runs([experiments, choices], [])
    assert len(compositions) == 3 * (1 + 4 + 1)


@pytest.mark.parametrize(
    "text",
    [
        "# @package _global_\nserver:\n  lr: 1\n",
        "defaults:\n  - override /server: adam  # a@b\n",
        "defaults:\n  - /parts@_global_: lr\n",
    ],
)
def test_so_is_any_group_with_a_file_that_sets_other_parts(text, tmp_path, monkeypatch):
    mine = tmp_path / "client" / "mine.yaml"
    mine.parent.mkdir()
    monkeypatch.setattr(factors, "own_folder", lambda: tmp_path)
    choices = [("server.lr=0.1",), ("client=gradient",)]
    mine.write_bytes(b"defaults:\n  - /client@inner: gradient  # \xff\n")
    assert Factors([])._split(choices) == ((), choices)
    mine.write_text(text)
    assert Factors([])._split(choices) == (("client=gradient",), [("server.lr=0.1",)])


def test_choices_about_one_setting_are_composed_together(compositions):
    runs = Factors([])
    for partition in ("iid", "sorted"):
        runs.names([("aggregator=median",), (f"partition={partition}",), ("aggregator.middle=lower",)], [1, 2])
    assert len(compositions) == 1 + 2 + 1 + 2  # the base, partitions, the rule, seeds


def test_choices_are_composed_where_that_is_less_work_than_composing_the_runs(compositions):
    """A run that is listed twice is composed once."""
    groups = [["partition=iid", "partition=sorted", ""], ["aggregator=average", "aggregator=median", ""]]
    for few in (5, 6):
        compositions.clear()
        runs = all_of(*groups)[:few]
        factors = Factors([], runs * 2)
        for choices in runs:
            factors.names(choices, [1])
        assert len(compositions) == (few if few == 5 else 1 + 2 + 2 + 1)


def test_what_is_refused_says_so():
    for choices, seeds, said in [
        ([("f=1",), ("aggregator=nosuch",)], [1], "there is no aggregator nosuch"),
        ([("aggregator=median",)], [1, 2**63], "seed"),
        ([("trainer.max_steps=${seed}",)], [1, 0], "trainer.max_steps"),
    ]:
        for runs in (None, [choices]):
            with pytest.raises(SettingError, match=said):
                Factors([], runs).names(choices, seeds)
