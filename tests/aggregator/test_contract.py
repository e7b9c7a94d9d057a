"""Laws of every rule in conf/aggregator.  What a rule is exempt from stands here as data, not in the rule."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightning_fl import Aggregator, SettingError, Updates
from tests import conf, world

H, F = 12, 3
RULES = conf.names("aggregator")
# Averaging has no defence; a loss does not see how long an update is (zeno puts a price on it).
NOT_ROBUST = {"average", "self_rejection", "average_rejection"}
# Rows are drawn into buckets, so the order of rows decides who meets whom.
ORDER_MATTERS = {name for name in RULES if name.startswith("bucketing")}
# Rules of distances, which move with the rows.
TRANSLATED = {"krum", "multi_krum", "geometric_median", "correntropy"}
HOSTILE = [float("nan"), float("inf"), float("-inf"), 1e30, -1e30, 0.0, "copy"]


def make(name: str) -> Aggregator:
    """A rule as conf has it, told that F clients may lie."""
    return conf.make("aggregator", name, f=F, n_iterations=F)


def apply(rule: Aggregator, rows: torch.Tensor) -> torch.Tensor:
    return rule.aggregate(Updates(rows), world.oracle()).update


@pytest.mark.parametrize("name", RULES)
def test_check_accepts_what_conf_has(name):
    make(name).check(H + F, world.CLASSES)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_keeps_shape_and_dtype_and_leaves_rows_alone(name, dtype):
    rows = world.honest_updates(H).to(dtype)
    before = rows.clone()
    oracle = world.oracle()
    oracle.model.to(dtype)
    data = oracle.classes.samples
    object.__setattr__(data, "inputs", data.inputs.to(dtype))
    aggregation = make(name).aggregate(Updates(rows), oracle)
    assert aggregation.update.shape == (world.D,)
    assert aggregation.update.dtype == dtype
    assert aggregation.update.isfinite().all()
    assert torch.equal(rows, before)
    if aggregation.weights is not None:
        assert aggregation.weights.shape == (H,)
        assert aggregation.weights.isfinite().all()


@pytest.mark.parametrize("name", RULES)
def test_same_rows_same_bits_and_no_global_randomness(name):
    rows, state = world.honest_updates(H), torch.random.get_rng_state()
    assert torch.equal(apply(make(name), rows), apply(make(name), rows))
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("name", RULES)
def test_asking_twice_gives_the_same_answer(name):
    """An adaptive attacker tries the rule before the round's real call."""
    rule, rows = make(name), world.honest_updates(H)
    first = apply(rule, rows)
    assert torch.equal(apply(rule, rows), first)


@pytest.mark.parametrize("name", [name for name in RULES if name not in ORDER_MATTERS])
def test_the_order_of_rows_is_irrelevant(name):
    rows = world.honest_updates(H)
    order = torch.randperm(H, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(apply(make(name), rows[order]), apply(make(name), rows), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in RULES if name not in NOT_ROBUST])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=F), st.booleans(), st.integers(0, 5))
def test_hostile_rows_leave_it_finite_and_near(name, hostile, whole, seed):
    """At most F rows of anything: the update stays finite and within ten times the largest honest row."""
    honest = world.honest_updates(H, seed=seed)
    bad = honest[: len(hostile)].clone()
    for row, value in zip(bad, hostile, strict=True):
        if value != "copy":
            row[slice(None) if whole else slice(4)] = value
    aggregation = make(name).aggregate(Updates(torch.cat([honest, bad])), world.oracle())
    assert aggregation.update.isfinite().all()
    assert aggregation.update.norm() <= 10 * honest.norm(dim=1).max()
    if aggregation.weights is not None:
        broken = ~bad.isfinite().all(1)
        assert (aggregation.weights[H:][broken] == 0).all()


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("offset", [1e3, 1e6, 1e7])
@pytest.mark.parametrize("name", sorted(TRANSLATED))
def test_an_offset_that_all_share_changes_nothing(name, offset, hostile):
    """Multiples of 2^-20 and of 1 add up exactly, so the weights must not see the offset."""
    draw = torch.Generator().manual_seed(0)
    rows = (torch.randn(25, 60, generator=draw, dtype=torch.float64) * 2**20).round() / 2**20
    shift = (offset * torch.randn(60, generator=draw, dtype=torch.float64)).round()
    there = rows + shift
    if hostile:
        for some in (rows, there):
            some[3:10] = 1e30
            some[12, 5] = torch.nan
    rule = conf.make("aggregator", name, f=8)
    expected, found = (rule.aggregate(Updates(some), world.oracle()) for some in (rows, there))
    torch.testing.assert_close(found.weights, expected.weights, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.update - shift, expected.update, rtol=0, atol=1e-6 + 1e-14 * offset)


@pytest.mark.parametrize("name", RULES)
def test_refuses_only_broken_rows(name):
    """Nothing can be made of NaN alone: a named error; averaging shows it, and the server alone does not care."""
    rows = torch.full((H, world.D), torch.nan)
    if name == "average":
        assert apply(make(name), rows).isnan().all()
    elif name == "server_only":
        assert apply(make(name), rows).isfinite().all()
    else:
        with pytest.raises(SettingError, match="update"):
            apply(make(name), rows)


@pytest.mark.parametrize("name", [name for name in RULES if "f" in conf.compose(f"aggregator={name}").aggregator])
@pytest.mark.parametrize("f", [-1, H + F])
def test_f_out_of_range_raises_before_training(name, f):
    rule = conf.make("aggregator", name, f=f)
    with pytest.raises(SettingError, match=f"got .*f={f}"):
        rule.check(H + F, world.CLASSES)
