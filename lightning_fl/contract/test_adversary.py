"""Laws of every attack in conf/adversary, found by looking there."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from hydra.utils import get_class, instantiate
from omegaconf import OmegaConf

from lightning_fl import Updates
from lightning_fl.adversary.base import Adversary
from lightning_fl.contract import conf, world
from lightning_fl.contract.device import PretendedDevice
from lightning_fl.contract.images import pictures, seeing
from lightning_fl.round import Round
from lightning_fl.samples import ClientBatch, Samples

COMPOSED = {name: conf.compose(f"adversary={name}").get("adversary") for name in conf.names("adversary")}
# conf has nothing to instantiate for nobody.
CONFIGS = {name: OmegaConf.create(OmegaConf.to_container(config)) for name, config in COMPOSED.items() if config}
EVERY = pytest.mark.parametrize("name", CONFIGS)
CLASSES, D = 10, 30  # as many classes as most data sets have: attacks may name some


@pytest.fixture(autouse=True, scope="module")
def _rare(tmp_path_factory):
    """Give attacks that read inputs from a file one."""
    path = tmp_path_factory.mktemp("rare") / "inputs.pt"
    torch.save(pictures(world.samples(2, seed=5)).inputs, path)
    for config in CONFIGS.values():
        if "path" in config and config.path is None:
            config.path = str(path)


def model(dtype=torch.float32, device=world.CPU):
    return seeing(world.model(n_classes=CLASSES)).to(device, dtype)


def honest_updates(dtype=torch.float32):
    return 0.3 + torch.randn(12, D, generator=torch.Generator().manual_seed(0), dtype=dtype)


def situation(b=3, dtype=torch.float32, device=world.CPU, **changes):
    """Honest updates, b, and a context with b Byzantine clients, who hold pictures of ten classes."""
    features = world.samples(30, seed=1).inputs.to(dtype)
    samples = pictures(Samples(features, torch.arange(len(features)) % CLASSES, CLASSES))
    byzantine = ClientBatch(samples, torch.arange(len(samples)).split(len(samples) // b)[:b], range(12, 12 + b))
    byzantine = world.moved(byzantine, device)
    context = replace(world.context(), model=model(dtype, device), byzantine=byzantine, **changes)
    return Updates(honest_updates(dtype).to(device)), b, context


def adversary(name):
    return instantiate(CONFIGS[name])


def same(a, b):
    return torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


@EVERY
def test_config_and_class_agree(name):
    kind = get_class(CONFIGS[name]._target_)
    assert issubclass(kind, Adversary)
    assert not (said := conf.unlike("adversary", name, kind)), said


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("b", [1, 5])
def test_one_row_a_byzantine_client(name, b, dtype):
    attacker = adversary(name)
    forged = attacker.attack(*situation(b, dtype))
    assert forged.shape == (b, D)
    assert forged.dtype == dtype
    assert forged.isfinite().all() or not attacker.finite, "it sends NaN or inf; declare finite = False"


@EVERY
def test_changes_nothing_that_is_not_its_own(name):
    previous = honest_updates()[0]
    honest, b, context = situation(round=Round(1, 0.1, 0), previous_update=previous)
    weights = honest.data_weights.clone()
    held = deepcopy(context.byzantine)
    state = torch.get_rng_state()
    adversary(name).attack(honest, b, context)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(honest.rows, honest_updates())
    assert torch.equal(honest.data_weights, weights)
    assert torch.equal(previous, honest_updates()[0])
    now = context.byzantine
    for before, after in [(held.samples.inputs, now.samples.inputs), (held.samples.targets, now.samples.targets)]:
        assert torch.equal(before, after), "it changes its clients' samples, which are the run's; work on a copy"
    assert all(map(torch.equal, held.indices, now.indices))
    assert all(p.grad is None for p in context.model.parameters())
    for p, q in zip(context.model.parameters(), model().parameters(), strict=True):
        assert torch.equal(p, q)


@EVERY
def test_same_seed_and_round_same_bits(name):
    torch.manual_seed(1)
    attacker = adversary(name)
    first = attacker.attack(*situation()).clone()
    torch.manual_seed(2)
    assert same(attacker.attack(*situation()), first)
    assert same(adversary(name).attack(*situation()), first)


@EVERY
@pytest.mark.parametrize(("variable", "other"), [("seed", Round(0, 0.1, 1)), ("round", Round(1, 0.1, 0))])
def test_seed_and_round_change_what_it_sends_if_it_says_so(name, variable, other):
    attacker = adversary(name)
    here, there = (adversary(name).attack(*situation(**changes)) for changes in ({}, {"round": other}))
    if variable in attacker.varies_with:
        assert not same(here, there), f"the {variable} changes nothing; leave it out of varies_with"
    else:
        assert same(here, there), f"the {variable} changes what it sends; declare varies_with = ({variable!r}, ...)"


@EVERY
def test_data_weights_count_only_if_it_says_so(name):
    honest, b, context = situation()
    weighted = Updates(honest.rows, torch.ones(honest.n).index_fill(0, torch.tensor([2]), 1000.0))
    unchanged = same(adversary(name).attack(weighted, b, context), adversary(name).attack(honest, b, context))
    declared = "weights" in adversary(name).varies_with
    assert declared or unchanged, 'data weights change what it sends; declare varies_with = ("weights",)'


@EVERY
def test_it_sends_the_same_whatever_it_does_not_know(name):
    """Over two rounds, other honest updates change nothing if it does not see them; the rule is there to be asked.

    Nor do other samples, for who goes by the models alone, nor another model, for who goes by nothing.
    """
    asked, knows = [], adversary(name).knows

    def rule(updates):
        asked.append(updates)
        return world.context().aggregation(updates)

    def sent(shift, samples=1, bias=0.0):
        attacker, found = adversary(name), []
        for t in range(2):
            honest, b, context = situation(round=Round(t, 0.1, 0), aggregation=rule)
            with torch.no_grad():
                next(context.model.parameters()).add_(t + bias)  # as a server's step does
                context.byzantine.samples.inputs.mul_(samples)
            found.append(attacker.attack(Updates(honest.rows * (1 + shift) + shift), b, context).clone())
            attacker.on_train_batch_end(None, None, None, None, t)
        return found

    here, hidden = sent(0), {}
    if knows in ("data", "models", "nothing"):
        hidden["honest updates"] = sent(1)
    if knows in ("models", "nothing"):
        hidden["its samples"] = sent(0, samples=0)
    if knows == "nothing":
        hidden["the model"] = sent(0, bias=0.5)
    for what, there in hidden.items():
        assert all(map(same, here, there)), f"{what} change what it sends; declare another knows than {knows!r}"
    assert knows == "rule" or not asked, 'it asks the rule; declare knows = "rule"'


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
def test_stays_on_the_gpu_where_the_updates_are(name):
    """One that is pretended, with its laws; what it remembers goes there from a checkpoint, and back."""
    whole, first, second, third = (adversary(name) for _ in range(4))
    given = [{}, {"round": Round(1, 0.1, 0), "previous_update": honest_updates()[0]}, {"round": Round(2, 0.1, 0)}]
    expected = [attacked(whole, **changes) for changes in given]
    attacked(first, **given[0])
    second.load_state_dict(deepcopy(first.state_dict()))
    with PretendedDevice() as gpu:
        given[1]["previous_update"] = honest_updates()[0].to(gpu.device)
        now = situation(device=gpu.device, **given[1])
        second.attack(*now)  # the first time, clients try out how to compute
        before, copies = len(gpu.waits), len(gpu.copies)
        found = second.attack(*now)
        second.on_train_batch_end(None, None, None, None, 0)
        waits = gpu.waits[before:]
        assert found.device == gpu.device
        assert len(waits) <= 2 or second.searches, f"it waits for the GPU in {waits}; do so less, or declare searches"
        assert gpu.copies[copies:] == [], "a copy to a GPU waits for it, unless non_blocking=True"
        torch.testing.assert_close(found.cpu(), expected[1], rtol=1e-4, atol=1e-5, equal_nan=True)
        third.load_state_dict(deepcopy(second.state_dict()))
    torch.testing.assert_close(attacked(third, **given[2]), expected[2], rtol=1e-4, atol=1e-5, equal_nan=True)


def attacked(attacker, **changes):
    """One round of the attack."""
    forged = attacker.attack(*situation(**changes)).clone()
    attacker.on_train_batch_end(None, None, None, None, 0)
    return forged


@EVERY
def test_outside_its_window_its_clients_are_honest_and_it_learns_on(name):
    first, second = situation(), situation(round=Round(1, 0.1, 0))
    late, always = adversary(name), adversary(name)
    late.from_round = 1
    assert same(late.send(*first), first[2].trained(first[2].byzantine))
    always.attack(*first)
    for attacker in (late, always):
        attacker.on_train_batch_end(None, None, None, None, 0)
    assert same(late.send(*second), always.attack(*second))


@EVERY
def test_what_is_possible_passes_the_check(name):
    adversary(name).check(12, 3, CLASSES)
