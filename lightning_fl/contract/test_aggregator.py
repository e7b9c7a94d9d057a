"""Laws of every rule in conf/aggregator.

A rule is held to the strict law unless its class declares otherwise (``robust = False``; see `Aggregator`).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from copy import deepcopy
from dataclasses import replace
from functools import cache
from itertools import product

import jaxtyping
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightning_fl import Aggregation, Aggregator, SettingError, Updates
from lightning_fl.aggregator.base import Motion, aggregated
from lightning_fl.aggregator.wrapper import other_hooks
from lightning_fl.client.gradient import Gradient
from lightning_fl.contract import conf, hostile, world
from lightning_fl.contract.case import case
from lightning_fl.contract.device import PretendedDevice
from lightning_fl.federation import Federation
from lightning_fl.samples import ClientBatch
from lightning_fl.server_oracle import GivenServer

STATE = "what it takes over into the next round changes at a round's end alone, and is saved; Memory does both"
FINITE = "a robust rule leaves out rows with NaN and inf, and says so if none is left, as finite_rows and ordered do"
H, F = 15, 3  # bulyan needs 4F + 3 rows
RULES = conf.names("aggregator")
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


DECLARED = {name: make(name) for name in RULES}


def those(law: Callable[[Aggregator], object]) -> list[str]:
    """The names of the rules that declare something."""
    return [name for name, rule in DECLARED.items() if law(rule)]


@contextmanager
def unchecked() -> Iterator[None]:
    """Leave shapes unchecked in laws that ask a rule many times, which would take twice as long; others have them."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


def apply(rule: Aggregator, rows: torch.Tensor) -> torch.Tensor:
    return rule.aggregate(Updates(rows, ids=range(len(rows))), world.oracle()).update


@pytest.mark.parametrize("name", RULES)
def test_check_accepts_what_conf_has(name):
    make(name).check(H + F, world.CLASSES)


@pytest.mark.parametrize("name", RULES)
def test_says_how_many_updates_it_needs(name):
    for f in (1, F):
        with case(f):
            rule = make(name, f)
            least = rule.least_n(world.CLASSES)
            rule.check(least, world.CLASSES)
            with pytest.raises(SettingError, match=r"needs .*n="):
                rule.check(least - 1, world.CLASSES)


@pytest.mark.parametrize("name", RULES)
def test_keeps_shape_and_dtype_and_leaves_rows_alone(name):
    """And says in float64 what it says in float32."""
    found = []
    for dtype in (torch.float32, torch.float64):
        rows = world.honest_updates(H).to(dtype)
        before = rows.clone()
        oracle = world.oracle()
        oracle.model.to(dtype)
        parameters = [parameter.clone() for parameter in oracle.model.parameters()]
        data = oracle.classes.samples
        object.__setattr__(data, "inputs", data.inputs.to(dtype))
        updates = Updates(rows, torch.arange(1.0, H + 1), range(H))
        weights = updates.data_weights.clone()
        with case(dtype):
            aggregation = make(name).aggregate(updates, oracle)
            assert aggregation.update.shape == (world.D,)
            assert aggregation.update.dtype == dtype
            assert aggregation.update.isfinite().all()
            assert torch.equal(rows, before)
            assert torch.equal(updates.data_weights, weights)
            assert all(map(torch.equal, oracle.model.parameters(), parameters))
            if aggregation.weights is not None:
                assert aggregation.weights.shape == (H,)
                assert aggregation.weights.isfinite().all()
        found.append(aggregation.update.double())
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


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
    assert torch.equal(apply(rule, rows), first), STATE


def rounds(
    rule: Aggregator, numbers: Iterable[int], device: torch.device = world.CPU, tried: bool = False
) -> list[torch.Tensor]:
    """What the rule makes of the rounds of these numbers, of which every second one moves the model.

    Tried with other rows before each, as an adaptive attacker does; the update is written over, as a server may.
    """
    found = []
    for t in numbers:
        rows, server = world.honest_updates(H, seed=t).to(device), world.oracle(index=t, device=device)
        with torch.no_grad():
            for parameter in server.model.parameters():
                parameter += 0.1 * ((t + 1) // 2)
        if tried:
            rule.aggregate(Updates(-9 * rows.flip(0), ids=range(H)), server)
        update = rule.aggregate(Updates(rows, ids=range(H)), server).update
        found.append(update.clone())
        if tried:
            update.zero_()
        rule.end_round(t)
    return found


@pytest.mark.parametrize("name", RULES)
def test_a_trial_leaves_no_trace(name):
    """An adaptive attacker's, with rows that are not sent; nor does what becomes of the update."""
    plain, tried = rounds(make(name), range(3)), rounds(make(name), range(3), tried=True)
    assert all(map(torch.equal, tried, plain)), STATE


@pytest.mark.parametrize("name", RULES)
def test_weights_make_the_update(name):
    """And what the server's own rows add."""
    rule, rows = make(name), world.honest_updates(H)
    found = rule.aggregate(Updates(rows, ids=range(H)), world.oracle())
    if found.weights is not None and not rule.needs_server:
        torch.testing.assert_close(found.weights.to(rows) @ rows, found.update, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", RULES)
def test_its_memory_goes_on_from_a_checkpoint(name):
    """Two rounds, saved and loaded into a fresh rule, and two more are four rounds."""
    whole, first, later = rounds(make(name), range(4)), make(name), make(name)
    rounds(first, range(2))
    later.load_state_dict(deepcopy(first.state_dict()))
    assert all(torch.equal(a, b) for a, b in zip(rounds(later, (2, 3)), whole[2:], strict=True)), STATE


@pytest.mark.parametrize("name", RULES)
def test_stays_on_the_gpu_where_the_rows_are(name):
    """One that is pretended, with its laws (`PretendedDevice`); the answer is that on the CPU up to rounding."""
    for bad in ("nobody", "broken"):
        rows = torch.cat([world.honest_updates(H), torch.tensor(BAD[bad])[:, None].expand(-1, world.D)])
        expected = make(name).aggregate(Updates(rows, ids=range(len(rows))), world.oracle())
        with case(bad):
            with PretendedDevice() as gpu:
                updates, server = Updates(rows.to(gpu.device), ids=range(len(rows))), world.oracle(device=gpu.device)
                found = make(name).aggregate(updates, server)
                assert found.update.device == gpu.device
                update, trusted = found.update.cpu(), None if found.trusted is None else found.trusted.cpu()
            torch.testing.assert_close(update, expected.update, rtol=1e-4, atol=1e-5, equal_nan=True)
            torch.testing.assert_close(trusted, expected.trusted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", those(lambda rule: not rule.searches))
def test_waits_for_a_gpu_twice_at_most(name):
    """Whatever n and d: to look at numbers there, one after the other, takes longer than to compute with them."""
    with PretendedDevice() as gpu:
        rule, server = make(name), world.oracle(device=gpu.device)
        for _ in range(2):  # the first time, the server tries out how to compute
            updates = Updates(world.honest_updates(H).to(gpu.device), ids=range(H))
            before, copies = len(gpu.waits), len(gpu.copies)
            assert rule.aggregate(updates, server).update.device == gpu.device
    waits = gpu.waits[before:]
    assert len(waits) <= 2, f"it waits in {waits}; bring what it decides by to the CPU at once, or declare searches"
    assert gpu.copies[copies:] == [], "a copy to a GPU (of an index, too) waits for it, unless non_blocking=True"


@pytest.mark.parametrize("name", RULES)
def test_its_memory_goes_on_from_a_checkpoint_on_another_device(name):
    first, later, last = make(name), make(name), make(name)
    rounds(first, [0])
    if not first.state_dict():
        return
    whole = rounds(make(name), range(3))
    later.load_state_dict(deepcopy(first.state_dict()))
    with PretendedDevice() as gpu:
        (second,) = rounds(later, [1], gpu.device)
        last.load_state_dict(deepcopy(later.state_dict()))
        torch.testing.assert_close(second.cpu(), whole[1], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(rounds(last, [2])[0], whole[2], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", those(lambda rule: not rule.order_matters))
def test_the_order_of_rows_is_irrelevant(name):
    rule, server, draw = make(name), world.oracle(), torch.Generator().manual_seed(1)
    for (bad, values), named in product(BAD.items(), (True, False)):
        rows = torch.cat([world.honest_updates(H), torch.tensor(values)[:, None].expand(-1, world.D)])

        def ask(order: torch.Tensor, rows: torch.Tensor = rows, named: bool = named) -> Aggregation:
            return rule.aggregate(Updates(rows[order], ids=order.tolist() if named else None), server)

        kept, reverse = torch.arange(len(rows)), torch.arange(len(rows)).flip(0)
        with case(bad, "named" if named else "without names"):
            if rule.needs_ids and not named:
                with pytest.raises(SettingError, match="needs their numbers"):
                    aggregated(rule, Updates(rows), server)
                continue
            plain = ask(kept)
            for order in [reverse, torch.randperm(len(rows), generator=draw)]:
                other = ask(order)
                torch.testing.assert_close(other.update, plain.update, rtol=1e-4, atol=1e-5, equal_nan=True)
                if plain.weights is not None:
                    expected, found = plain.weights.double(), torch.empty(len(rows), dtype=torch.float64)
                    found[order] = other.weights.double()
                    if bad in ("huge copies", "zeros"):  # which of the copies counts is all the same
                        expected[H:], found[H:] = expected[H:].sort().values, found[H:].sort().values
                    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", those(lambda rule: rule.remembers and not rule.order_matters))
@pytest.mark.parametrize("absent", [0, 2])
def test_it_remembers_clients_and_not_rows(name, absent):
    """Over four rounds, in which clients stand in other rows, and some may be absent."""
    if absent and DECLARED[name].needs_client is not None:
        return

    def found(shuffled: bool) -> list[torch.Tensor]:
        rule, draw, answers = make(name), torch.Generator().manual_seed(1), []
        for t in range(4):
            order = torch.randperm(H, generator=draw)[absent * (t % 2) :]
            order = order if shuffled else order.sort().values
            updates = Updates(world.honest_updates(H, seed=t)[order], ids=order.tolist())
            answers.append(rule.aggregate(updates, world.oracle(index=t)).update.clone())
            rule.end_round(t)
        return answers

    for here, there in zip(found(shuffled=True), found(shuffled=False), strict=True):
        torch.testing.assert_close(here, there, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", RULES)
def test_who_attacks_changes_nothing(name):
    """It may check its settings by who takes part, and must not go by who attacks; so it takes no trainer either."""
    assert not (hooks := other_hooks(make(name))), f"{hooks} get the trainer, which knows who attacks"
    rows, found = world.honest_updates(H + F), []
    for attackers in ([1, 2, 3], [15, 16, 17]):
        rule = make(name)
        rule.check_clients(Federation(H + F, F, "replacement", which=attackers))
        found.append(apply(rule, rows))
    torch.testing.assert_close(*found, rtol=0, atol=0)


@pytest.mark.parametrize("name", those(lambda rule: rule.robust))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(5, 24),
    hostile.lists(F, also=["alone"]),
    st.sampled_from([4, None]),
    st.integers(0, 5),
    st.integers(0, 100),
)
@unchecked()
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
    honest, draw = world.honest_updates(h, seed=seed), torch.Generator().manual_seed(seed)
    place, ids = torch.randperm(h + f, generator=draw), torch.randperm(h + f, generator=draw).tolist()
    rows = hostile.rows(honest, values, entries)[place]  # no order and no number tells who is honest
    if (trusted := rule.needs_client) is not None:
        there, here = ids.index(trusted), place.tolist().index(0)
        ids[there], ids[here] = ids[here], ids[there]
    aggregation = rule.aggregate(Updates(rows, ids=ids), world.oracle(index=index))
    assert aggregation.update.isfinite().all(), FINITE
    assert aggregation.update.norm() <= (h + f if rule.sums else 10) * honest.norm(dim=1).max()
    if aggregation.weights is not None:
        assert (aggregation.weights[~rows.isfinite().all(1)] == 0).all()


@cache
def of_the_server() -> tuple[torch.Tensor, torch.Tensor]:
    """Class updates of a server, and its own update."""
    return world.oracle().class_updates.double(), world.oracle().update.double()


class _Given(GivenServer):
    """A server with class updates and an update of its own, both moved."""

    def __init__(self, move: Callable[[torch.Tensor], torch.Tensor]):
        of_classes, own = of_the_server()
        super().__init__(move(of_classes))
        self.update = move(own)

    update = None


def may_move(rule: Aggregator) -> bool:
    """Whether all that the rule looks at are vectors."""
    return rule.needs_server != "samples" and not rule.needs_model


def motion_of(motion: Motion, seed: int) -> Callable[[torch.Tensor], torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    shift = torch.randn(world.D, generator=draw).double()
    rotation = torch.linalg.qr(torch.randn(world.D, world.D, generator=draw).double()).Q
    return {"shift": lambda x: x + shift, "scale": lambda x: 3 * x, "rotation": lambda x: x @ rotation}[motion]


@pytest.mark.parametrize(("name", "motion"), [(name, m) for name in those(may_move) for m in DECLARED[name].moves_with])
@unchecked()
def test_moves_with_the_rows(name, motion):
    for seed in range(3):
        move, rule = motion_of(motion, seed), make(name)
        rows = torch.cat([world.honest_updates(H, seed=seed), 3 * world.honest_updates(F, seed=seed + 9)]).double()
        still = rule.aggregate(Updates(rows, ids=range(H + F)), _Given(lambda x: x)).update
        moved = rule.aggregate(Updates(move(rows), ids=range(H + F)), _Given(move)).update
        with case(f"seed {seed}: if the result is not to move by a {motion} of all rows, declare moves_with"):
            torch.testing.assert_close(moved, move(still), rtol=1e-6, atol=1e-6)


def shifted() -> list[str]:
    """The names of the rules that move by a shift and tolerate 8 of 25 rows, by themselves."""
    found = []
    for name in those(lambda rule: rule.robust and "shift" in rule.moves_with and not rule.needs_server):
        rule = make(name, 8)
        with suppress(SettingError):
            rule.check(25, world.CLASSES)
            found += [] if rule.guarantee(25, world.CLASSES) else [name]
    return found


@pytest.mark.parametrize("name", shifted())
@unchecked()
def test_an_offset_that_all_share_changes_nothing(name):
    """Multiples of 2^-20 and of 1 add up exactly, so the weights must not see the offset."""
    for offset, broken in product([1e3, 1e6, 1e7], [False, True]):
        draw = torch.Generator().manual_seed(0)
        rows = (torch.randn(25, 60, generator=draw, dtype=torch.float64) * 2**20).round() / 2**20
        shift = (offset * torch.randn(60, generator=draw, dtype=torch.float64)).round()
        there = rows + shift
        if broken:
            for some in (rows, there):
                some[3:10] = 1e30
                some[12, 5] = torch.nan
        rule = make(name, 8)
        with case(offset, "broken" * broken, "if the result is not to move by a shift, declare moves_with"):
            expected, found = (rule.aggregate(Updates(some, ids=range(25)), world.oracle()) for some in (rows, there))
            if expected.weights is not None:
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
    """Nothing can be made of NaN alone: an error that says what is needed; a rule without a defence may show it."""
    rule, said, update = make(name), "", None
    try:
        update = apply(rule, torch.full((H, world.D), torch.nan))
    except SettingError as error:
        said = str(error)
    if update is None:
        assert rule.reads_updates
        assert "needs at least one" in said
    else:
        assert not rule.reads_updates or (update.isnan().all() and not rule.robust), FINITE


@pytest.mark.parametrize("name", [name for name in RULES if "f" in conf.compose(f"aggregator={name}").aggregator])
def test_f_out_of_range_raises_before_training(name):
    for f in (-1, H + F):
        with case(f), pytest.raises(SettingError, match=f"got .*{f}"):
            make(name, f).check(H + F, world.CLASSES)


@pytest.mark.parametrize("name", those(lambda rule: rule.exact))
def test_equal_rows_win(name):
    """N - f of them, for the smallest n with a guarantee; both ends of the order are hostile in turn."""
    for bad, values in [*list(BAD.items())[1:], ("of usual length", [0.3, 0.3, -0.3])]:
        f, row = len(values), world.honest_updates(1)
        rule = make(name, f)
        n = next(n for n in range(f + 3, 20) if 2 * f < n and not rule.guarantee(n, world.CLASSES))
        rows = torch.cat([row.expand(n - f, -1), torch.tensor(values)[:, None].expand(-1, world.D)])
        for x in [rows, rows.flip(0)]:
            with case(bad):
                torch.testing.assert_close(apply(rule, x), row[0])
