"""Laws of every rule in conf/aggregator.  A rule's exemptions are data here, not part of the rule."""

from collections.abc import Iterable
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightning_fl import Aggregation, Aggregator, SettingError, Updates
from lightning_fl.client.gradient import Gradient
from lightning_fl.contract import conf, hostile, world
from lightning_fl.samples import ClientBatch

H, F = 15, 3  # bulyan needs 4F + 3 rows
RULES = conf.names("aggregator")
# Averaging has no defence; a loss does not see how long an update is (zeno puts a price on it).
NOT_ROBUST = {"average", "self_rejection", "average_rejection"}
# It is concerned with Sybils only: a single attacker passes, however long its update.
NOT_ROBUST |= {"foolsgold"}
# Rows are drawn into buckets, so the order of rows decides who meets whom.
ORDER_MATTERS = {name for name in RULES if name.startswith(("bucketing", "resampling"))}
# With one neighbour counted, as in the last of bulyan's choices for f < 3, the nearest two have the same score.
ORDER_MATTERS |= {"bulyan"}
# Rules of distances, which move with the rows.
TRANSLATED = {"aksel", "caf", "correntropy", "geometric_median", "krum", "mda", "medoid", "multi_krum", "smea"}
# Where n - f rows are one and the same, so is the result: what being (f, kappa)-robust with any kappa means.
EXACT = [
    *["aksel", "caf", "correntropy", "geometric_median", "krum", "mda", "median", "medoid", "multi_krum", "smea"],
    *["gas", "meamed", "phocas"],
    *["trimmed_mean", *(name for name in RULES if name.startswith("nnm_"))],
]
# What F clients send beside honest rows; each row of "huge" is another one.
BAD = {
    "nobody": [],
    "one huge": [1e30],
    "huge": [1e30, -2e30, 3e30],
    "huge copies": [1e30, 1e30, 1e30],
    "broken": [float("nan"), float("inf"), 1e30],
    "zeros": [0.0, 0.0, 0.0],
}


def make(name: str, f: int = F) -> Aggregator:
    """A rule as conf has it, told that f clients may lie."""
    return conf.make("aggregator", name, f=f, n_iterations=f)


def apply(rule: Aggregator, rows: torch.Tensor) -> torch.Tensor:
    return rule.aggregate(Updates(rows, ids=range(len(rows))), world.oracle()).update


@pytest.mark.parametrize("name", RULES)
def test_check_accepts_what_conf_has(name):
    make(name).check(H + F, world.CLASSES)


@pytest.mark.parametrize("f", [1, F])
@pytest.mark.parametrize("name", RULES)
def test_says_how_many_updates_it_needs(name, f):
    rule = make(name, f)
    least = rule.least_n(world.CLASSES)
    rule.check(least, world.CLASSES)
    with pytest.raises(SettingError, match=r"needs .*n="):
        rule.check(least - 1, world.CLASSES)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_keeps_shape_and_dtype_and_leaves_rows_alone(name, dtype):
    rows = world.honest_updates(H).to(dtype)
    before = rows.clone()
    oracle = world.oracle()
    oracle.model.to(dtype)
    parameters = [parameter.clone() for parameter in oracle.model.parameters()]
    data = oracle.classes.samples
    object.__setattr__(data, "inputs", data.inputs.to(dtype))
    aggregation = make(name).aggregate(Updates(rows, ids=range(H)), oracle)
    assert aggregation.update.shape == (world.D,)
    assert aggregation.update.dtype == dtype
    assert aggregation.update.isfinite().all()
    assert torch.equal(rows, before)
    assert all(map(torch.equal, oracle.model.parameters(), parameters))
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


def rounds(rule: Aggregator, numbers: Iterable[int]) -> list[torch.Tensor]:
    """What the rule makes of the rounds of these numbers."""
    found = []
    for t in numbers:
        rows = Updates(world.honest_updates(H, seed=t), ids=range(H))
        found.append(rule.aggregate(rows, world.oracle(index=t)).update.clone())
        rule.on_train_batch_end(None, None, None, None, t)
    return found


@pytest.mark.parametrize("name", RULES)
def test_its_memory_goes_on_from_a_checkpoint(name):
    """Two rounds, saved and loaded into a fresh rule, and two more are four rounds."""
    whole, first, later = rounds(make(name), range(4)), make(name), make(name)
    rounds(first, range(2))
    later.load_state_dict(deepcopy(first.state_dict()))
    assert all(torch.equal(a, b) for a, b in zip(rounds(later, (2, 3)), whole[2:], strict=True))


@pytest.mark.parametrize("named", [True, False], ids=["clients", "rows"])
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", [name for name in RULES if name not in ORDER_MATTERS])
def test_the_order_of_rows_is_irrelevant(name, bad, named):
    rows = torch.cat([world.honest_updates(H), torch.tensor(BAD[bad])[:, None].expand(-1, world.D)])
    draw = torch.Generator().manual_seed(1)
    reverse, shuffled = torch.arange(len(rows)).flip(0), torch.randperm(len(rows), generator=draw)
    rule = make(name)

    def ask(order: torch.Tensor) -> Aggregation:
        return rule.aggregate(Updates(rows[order], ids=order.tolist() if named else None), world.oracle())

    if rule.needs_ids and not named:
        with pytest.raises(SettingError, match="needs their numbers"):
            ask(torch.arange(len(rows)))
        return
    plain = ask(torch.arange(len(rows)))
    for order in [reverse, shuffled]:
        other = ask(order)
        torch.testing.assert_close(other.update, plain.update, rtol=1e-4, atol=1e-5, equal_nan=True)
        if plain.weights is not None:
            expected, found = plain.weights.double(), torch.empty(len(rows), dtype=torch.float64)
            found[order] = other.weights.double()
            if bad in ("huge copies", "zeros"):  # which of the copies counts is all the same
                expected[H:], found[H:] = expected[H:].sort().values, found[H:].sort().values
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in RULES if name not in NOT_ROBUST])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(5, 24),
    hostile.lists(F),
    st.sampled_from([4, None]),
    st.integers(0, 5),
    st.integers(0, 100),
)
def test_hostile_rows_leave_it_finite_and_near(name, h, values, entries, seed, index):
    """At most f rows of anything: the update stays finite and within ten times the largest honest row (a sum: h + f).

    If a rule itself says that it guarantees nothing for that many rows, nothing is asked of it.
    """
    f = len(values)
    rule = make(name, f)
    try:
        rule.check(h + f, world.CLASSES)
    except SettingError:
        return
    if rule.guarantee(h + f, world.CLASSES):
        return
    honest = world.honest_updates(h, seed=seed)
    rows = hostile.rows(honest, values, entries)
    aggregation = rule.aggregate(Updates(rows), world.oracle(index=index))
    assert aggregation.update.isfinite().all()
    assert aggregation.update.norm() <= (h + f if rule.sums else 10) * honest.norm(dim=1).max()
    if aggregation.weights is not None:
        assert (aggregation.weights[~rows.isfinite().all(1)] == 0).all()


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("offset", [1e3, 1e6, 1e7])
@pytest.mark.parametrize("name", sorted(TRANSLATED & set(RULES)))
def test_an_offset_that_all_share_changes_nothing(name, offset, broken):
    """Multiples of 2^-20 and of 1 add up exactly, so the weights must not see the offset."""
    draw = torch.Generator().manual_seed(0)
    rows = (torch.randn(25, 60, generator=draw, dtype=torch.float64) * 2**20).round() / 2**20
    shift = (offset * torch.randn(60, generator=draw, dtype=torch.float64)).round()
    there = rows + shift
    if broken:
        for some in (rows, there):
            some[3:10] = 1e30
            some[12, 5] = torch.nan
    rule = conf.make("aggregator", name, f=8)
    expected, found = (rule.aggregate(Updates(some, ids=range(25)), world.oracle()) for some in (rows, there))
    torch.testing.assert_close(found.weights, expected.weights, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.update - shift, expected.update, rtol=0, atol=1e-6 + 1e-14 * offset)


class _Untrained(Gradient):
    """What no virtual client of the server can do."""

    def updates(self, *args):
        raise SettingError("a virtual client was asked")


@pytest.mark.parametrize("name", RULES)
def test_says_what_it_needs_of_the_server(name):
    """A run without it is refused before it starts, so the rule must say so, and must say nothing else."""
    rule, rows = make(name), Updates(world.honest_updates(H), ids=range(H))
    with pytest.raises(SettingError, match="needs server data") if rule.needs_server else nullcontext():
        rule.aggregate(rows, replace(world.oracle(), classes=ClientBatch(world.samples(), [], [])))
    trains = rule.needs_server == "updates"
    with pytest.raises(SettingError, match="a virtual client was asked") if trains else nullcontext():
        rule.aggregate(rows, replace(world.oracle(), client=_Untrained()))


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


@pytest.mark.parametrize("bad", [bad for bad in BAD if bad != "nobody"])
@pytest.mark.parametrize("name", [name for name in RULES if name in EXACT])
def test_equal_rows_win(name, bad):
    """N - f of them, for the smallest n with a guarantee; both ends of the order are hostile in turn."""
    f, row = len(BAD[bad]), world.honest_updates(1)
    rule = make(name, f)
    n = next(n for n in range(f + 3, 20) if 2 * f < n and not rule.guarantee(n, world.CLASSES))
    rows = torch.cat([row.expand(n - f, -1), torch.tensor(BAD[bad])[:, None].expand(-1, world.D)])
    for x in [rows, rows.flip(0)]:
        torch.testing.assert_close(apply(rule, x), row[0])
