"""Laws of every attack in conf/adversary, found by looking there."""

import inspect
from dataclasses import replace

import pytest
import torch
from hydra.utils import get_class, instantiate
from omegaconf import OmegaConf

from lightning_fl import Updates
from lightning_fl.adversary.backdoor import Backdoor
from lightning_fl.adversary.base import Adversary
from lightning_fl.contract import conf, world
from lightning_fl.contract.images import pictures, seeing
from lightning_fl.round import Round
from lightning_fl.run.config import own_folder
from lightning_fl.samples import ClientBatch

CONFIGS = {
    name: OmegaConf.create(OmegaConf.to_container(conf.compose(f"adversary={name}").adversary))
    for name in conf.names("adversary")
    if name != "none"
}
# Settings for three classes.
SMALL = {"label_flip_pair": {"target": 1}}
RANDOM = {"gaussian", "gaussian_models", "gaussian_updates", "fang", "mimic_learned"}
BACKDOORS = {name for name, config in CONFIGS.items() if issubclass(get_class(config._target_), Backdoor)}
RANDOM_ONCE = {"label_flip_random"} | BACKDOORS  # which samples are poisoned
ASKING = {"adaptive", "one_coordinate", "opt_alie", "opt_ipm"}  # the rule, which sees data weights
EVERY = pytest.mark.parametrize("name", CONFIGS)


@pytest.fixture(autouse=True, scope="module")
def _rare(tmp_path_factory):
    """Give the edge-case attack its file."""
    path = tmp_path_factory.mktemp("rare") / "inputs.pt"
    torch.save(pictures(world.samples(2, seed=5)).inputs, path)
    if "edge_case" in CONFIGS:
        CONFIGS["edge_case"].path = str(path)


def situation(b=3, dtype=torch.float32, **changes):
    """Honest updates of the small world, seen as pictures, b, and a context with b Byzantine clients."""
    context = world.context()
    samples = pictures(context.byzantine.samples)
    samples = replace(samples, inputs=samples.inputs.to(dtype))
    parts = context.byzantine.indices
    byzantine = ClientBatch(samples, [parts[i % len(parts)] for i in range(b)], range(12, 12 + b))
    context = replace(context, model=seeing(context.model).to(dtype), byzantine=byzantine, **changes)
    return Updates(world.honest_updates().to(dtype)), b, context


def adversary(name):
    return instantiate(CONFIGS[name], **SMALL.get(name, {}))


def same(a, b):
    return torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


@EVERY
def test_config_and_class_agree(name):
    kind = get_class(CONFIGS[name]._target_)
    assert issubclass(kind, Adversary)
    assert set(inspect.signature(kind).parameters) == set(CONFIGS[name]) - {"_target_"}


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("b", [1, 5])
def test_one_row_a_byzantine_client(name, b, dtype):
    forged = adversary(name).attack(*situation(b, dtype))
    assert forged.shape == (b, world.D)
    assert forged.dtype == dtype
    assert forged.isfinite().all() or name == "non_finite"


@EVERY
def test_changes_nothing_that_is_not_its_own(name):
    honest, b, context = situation()
    weights = honest.data_weights.clone()
    state = torch.get_rng_state()
    adversary(name).attack(honest, b, context)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(honest.rows, world.honest_updates())
    assert torch.equal(honest.data_weights, weights)
    assert all(p.grad is None for p in context.model.parameters())
    for p, q in zip(context.model.parameters(), world.model().parameters(), strict=True):
        assert torch.equal(p, q)


@EVERY
def test_same_seed_and_round_same_bits(name):
    torch.manual_seed(1)
    attacker = adversary(name)
    first = attacker.attack(*situation()).clone()
    torch.manual_seed(2)
    assert same(attacker.attack(*situation()), first)
    assert same(adversary(name).attack(*situation()), first)


@pytest.mark.parametrize("name", [] if own_folder() else CONFIGS)  # which attacks of others are random is not known
@pytest.mark.parametrize(
    ("change", "random"),
    [({"round": Round(0, 0.1, 1)}, RANDOM | RANDOM_ONCE), ({"round": Round(1, 0.1, 0)}, RANDOM)],
    ids=["seed", "round"],
)
def test_only_random_attacks_change_with_seed_and_round(name, change, random):
    here, there = (adversary(name).attack(*situation(**changes)) for changes in ({}, change))
    assert same(here, there) == (name not in random)


@pytest.mark.parametrize("name", [] if own_folder() else [name for name in CONFIGS if name not in ASKING])
def test_data_weights_do_not_count_unless_the_rule_is_asked(name):
    honest, b, context = situation()
    weighted = Updates(honest.rows, torch.ones(honest.n).index_fill(0, torch.tensor([2]), 1000.0))
    assert same(adversary(name).attack(weighted, b, context), adversary(name).attack(honest, b, context))


@EVERY
def test_a_round_that_does_not_end_is_not_remembered(name):
    """Memory moves at the end of a round only, travels in state_dict, and decides the next round."""
    asked, whole, resumed = adversary(name), adversary(name), adversary(name)
    first, second = situation(), situation(round=Round(1, 0.1, 0))
    for attacker in (asked, whole):
        attacker.attack(*first)
        attacker.on_train_batch_end(None, None, None, None, 0)
    asked.attack(Updates(-second[0].rows), *second[1:])
    resumed.load_state_dict(asked.state_dict())
    expected = whole.attack(*second)
    assert same(asked.attack(*second), expected)
    assert same(resumed.attack(*second), expected)


@EVERY
def test_what_is_possible_passes_the_check(name):
    adversary(name).check(12, 3, 3)
