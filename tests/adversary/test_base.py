"""What all attacks share: how they are called without a run, which settings they refuse, and what conf says."""

from dataclasses import replace
from math import inf, nan

import pytest
import torch

from lightning_fl import SettingError, Updates
from lightning_fl.adversary.adaptive import Adaptive
from lightning_fl.adversary.badnets import Badnets
from lightning_fl.adversary.bit_flip import BitFlip
from lightning_fl.adversary.dba import Dba
from lightning_fl.adversary.edge_case import EdgeCase
from lightning_fl.adversary.fang import Fang
from lightning_fl.adversary.gaussian import Gaussian
from lightning_fl.adversary.ipm import Ipm
from lightning_fl.adversary.label_flip import LabelFlip, LabelFlipPair, LabelFlipRandom
from lightning_fl.adversary.lie import Lie
from lightning_fl.adversary.mimic import Mimic, MimicLearned
from lightning_fl.adversary.min_max import MinMax, MinSum
from lightning_fl.adversary.model_replacement import ModelReplacement
from lightning_fl.adversary.neurotoxin import Neurotoxin
from lightning_fl.adversary.one_coordinate import OneCoordinate
from lightning_fl.adversary.opt_alie import OptAlie
from lightning_fl.adversary.opt_ipm import OptIpm
from lightning_fl.adversary.rop import Rop
from lightning_fl.adversary.same_value import SameValue
from lightning_fl.adversary.sign_flip import SignFlip
from lightning_fl.aggregator.trimmed_mean import TrimmedMean
from lightning_fl.contract import conf, world
from lightning_fl.contract import test_adversary as laws
from lightning_fl.round import Round

SEARCHING = [Adaptive(), OneCoordinate(), OptIpm(), OptAlie()]


@pytest.mark.parametrize(
    "attack",
    [Ipm(), Lie(drawn=True), Gaussian(1.0, "updates"), Fang(), MimicLearned(), MinMax(), Rop(), SignFlip(), *SEARCHING],
    ids=lambda attack: attack.spelled(),
)
def test_a_call_is_the_attack_of_a_first_round(attack):
    """With seed, rule, data weights and last update as the round would have them."""
    rows, weights, rule = world.honest_updates(), torch.arange(1.0, 13.0), TrimmedMean(f=3)
    context = replace(
        world.context(),
        aggregation=lambda updates: rule.aggregate(updates, world.oracle()),
        previous_update=torch.arange(1.0, 10.0),
        round=Round(0, 0.1, seed=7),
    )
    expected = attack.attack(Updates(rows, weights), 3, context)
    called = attack(rows, 3, rule=rule, weights=weights, previous_update=context.previous_update, seed=7)
    assert torch.equal(called, expected)


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        (
            LabelFlip(),
            "label_flip needs the Byzantine clients' samples, got a matrix of updates alone; let it attack a",
        ),
        (Badnets(), "badnets needs the Byzantine clients' samples, got a matrix"),
        (BitFlip(), "bit_flip needs the Byzantine clients' samples, got a matrix"),
        (Gaussian(), "gaussian needs what clients compute, got a matrix"),
        *[(attack, f"{attack.spelled()} needs the server's rule, got none; give one, such as") for attack in SEARCHING],
    ],
)
def test_a_matrix_is_not_enough_for(attack, message):
    with pytest.raises(SettingError, match=message):
        attack(torch.randn(5, 3), 2)


@pytest.mark.parametrize("b", [0, -1])
def test_somebody_must_attack(b):
    with pytest.raises(SettingError, match=f"n_byzantine must be a whole number of at least 1, got {b}"):
        Ipm()(torch.ones(3, 2), b)


@pytest.mark.parametrize("kind", [Lie, MinMax, MinSum, OptAlie, OneCoordinate, Adaptive])
def test_one_honest_update_has_no_deviation(kind):
    attack, message = kind(), f"{kind.spelled()} needs at least 2 honest updates, got 1; add clients"
    with pytest.raises(SettingError, match=message):
        attack.check(1, 1, 10)
    with pytest.raises(SettingError, match=message):
        attack(torch.ones(1, 3), 1, rule=TrimmedMean(f=0))


def test_mimic_copies_a_row_that_is_there():
    Mimic(4).check(5, 2, 3)
    with pytest.raises(SettingError, match="copies row 5 of the honest updates, of which a round has 5; lower target"):
        Mimic(5)(torch.ones(5, 3), 2)


CLASSES = {"target": [-1], "source": [-1]}
BACKDOOR = CLASSES | {"share": [0.0, 1.1, nan], "momentum": ["some"]}
BADNETS = BACKDOOR | {"size": [0]}
SEARCH = {"evaluations": [0], "start": [inf], "step": [0.0, nan], "ratio": [0.0, 1.0]}
BETWEEN = {"gamma_init": [0.0, inf, nan], "tau": [0.0, -0.1, inf], "direction": ["up"]}
REFUSED = {
    Adaptive: {"evaluations": [87], "max_factor": [0.0, inf], "damage": ["angle"]},
    Badnets: BADNETS,
    BitFlip: {"factor": [inf], "momentum": ["some"]},
    Dba: BACKDOOR | {"length": [0], "gap": [-1], "shift": [-1], "factor": [0.0]},
    EdgeCase: {
        "target": [-1, None],
        "share": [0.0],
        "train_share": [0.0, 1.0],
        "radius": [0.0],
        "factor": [0.0],
        "momentum": ["some"],
    },
    Fang: {"variant": ["mean"]},
    Gaussian: {"std": [-1.0, nan, inf], "space": ["gradients"]},
    Ipm: {"factor": [inf]},
    LabelFlip: {"momentum": ["some"]},
    LabelFlipPair: CLASSES | {"momentum": ["some"]},
    LabelFlipRandom: {"among": ["some"], "momentum": ["some"]},
    Lie: {"factor": [nan], "sign": ["both"]},
    Mimic: {"target": [-1]},
    MimicLearned: {"warm_up": [0]},
    MinMax: BETWEEN,
    MinSum: BETWEEN,
    ModelReplacement: BADNETS | {"factor": [0.0], "max_norm": [0.0]},
    Neurotoxin: BADNETS | {"top": [1.0, -0.1], "max_norm": [0.0]},
    OneCoordinate: {"direction": ["two"], "evaluations": [1]},
    OptAlie: SEARCH,
    OptIpm: SEARCH,
    Rop: {"factor": [-1.0, inf], "angle": [nan], "location": [1.5], "reference": [-0.1]},
    SameValue: {"value": [inf]},
    SignFlip: {"factor": [nan]},
}


@pytest.mark.parametrize(
    ("kind", "setting", "value"),
    [
        (kind, name, value)
        for kind, settings in REFUSED.items()
        for name, values in settings.items()
        for value in values
    ],
)
def test_settings_out_of_range_are_refused_by_name(kind, setting, value):
    with pytest.raises(SettingError, match=rf"{kind.spelled()}\b.* {setting}\b.*got {value!r}"):
        kind(**{setting: value})


@pytest.mark.parametrize("kind", [Badnets, Dba, ModelReplacement, Neurotoxin, LabelFlipPair])
def test_samples_change_their_class(kind):
    with pytest.raises(SettingError, match=rf"{kind.spelled()} needs (another target|two different).* got 1\b"):
        kind(source=1, target=1)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("badnets", {"target": 0, "source": None, "share": 0.32, "size": 5}),
        ("dba", {"length": 4, "gap": 2, "shift": 0, "factor": 1.0}),  # the authors' trigger
        ("gaussian", {"std": 200.0, "space": "parameters"}),
        ("gaussian_models", {"std": 1e4, "space": "models"}),
        ("gaussian_updates", {"std": pytest.approx(90**0.5), "space": "updates"}),
        ("label_flip_pair", {"source": 2, "target": 7}),
        ("label_flip_to_one", {"source": None, "target": 0}),
        ("lie", {"factor": None}),
        ("model_replacement", {"factor": None, "max_norm": None}),
        ("neurotoxin", {"top": 0.05, "max_norm": None}),
        ("raga_lie", {"factor": 0.7}),
    ],
)
def test_conf_is_the_papers(name, settings):
    attack = conf.make("adversary", name)
    assert {key: getattr(attack, key) for key in settings} == settings


def test_an_attack_that_knows_more_than_it_says_is_found_out(monkeypatch):
    class Sly(Ipm):
        knows = "nothing"

    class Asks(Ipm):
        def attack(self, honest, n_byzantine, context):
            context.rule(honest)
            return super().attack(honest, n_byzantine, context)

    for kind, message in [(Sly, "declare another knows than 'nothing'"), (Asks, 'declare knows = "rule"')]:
        monkeypatch.setattr(laws, "adversary", lambda name, kind=kind: kind())
        with pytest.raises(AssertionError, match=message):
            laws.test_it_sends_the_same_whatever_it_does_not_know("mine")


@pytest.mark.parametrize("warm_up", [1, None])
def test_what_mimic_learns_goes_on_from_a_checkpoint(warm_up, monkeypatch):
    monkeypatch.setattr(laws, "adversary", lambda name: MimicLearned(warm_up))
    laws.test_a_round_that_does_not_end_is_not_remembered("mine")


def test_an_attack_on_a_plain_matrix_draws_from_seed_0_unless_told():
    rows = world.honest_updates(5)
    attack = Lie(0.7, drawn=True)
    assert torch.equal(attack(rows, 2), attack(rows, 2, seed=0))
