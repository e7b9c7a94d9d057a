"""Rules at any length of the updates that float64 can hold."""

from itertools import product

import pytest
import torch

from lightning_fl import DivergedError, Updates
from lightning_fl.contract import conf, world

RULES = conf.names("aggregator")
H, F = 15, 3
# Rules with a length of their own (a radius, a price, the server's gradient); averages that no length is too long for.
ABSOLUTE = {"average_rejection", "boba", "bygars", "centred_clipping", "clipped_clustering", "clipped_sum", "clipping"}
ABSOLUTE |= {"delayed_momentum"}
ABSOLUTE |= {"crfl", "fltrust", "huber", "monna", "norm_bounding", "normalized", "rfa", "self_rejection"}
ABSOLUTE |= {"server_mixture", "sequential_centred_clipping", "server_only", "sign_vote", "zeno"}
BY_COLUMN = {"average", "crfl", "meamed", "median", "phocas", "rlr", "server_mixture", "server_only", "sign_vote"}
BY_COLUMN |= {"rosdhb", "step_clipping", "trimmed_mean"}
NOT_ROBUST = {"alignins", "average", "average_rejection", "crfl", "foolsgold", "rlr", "self_rejection"}


@pytest.fixture(scope="module")
def server():
    oracle = world.oracle()
    oracle.model.double()
    samples = oracle.classes.samples
    object.__setattr__(samples, "inputs", samples.inputs.double())
    return oracle


@pytest.fixture
def ask(name, server):
    rule = conf.make("aggregator", name, f=F, n_iterations=F)
    return lambda rows: rule.aggregate(Updates(rows, ids=range(len(rows))), server).update


@pytest.mark.parametrize("name", [name for name in RULES if name not in ABSOLUTE])
def test_the_answer_grows_with_the_updates(name, ask):
    """By a power of two exactly, since it changes no digit."""
    rows = world.honest_updates(H).double()
    expected = ask(rows)
    for power in (-240, 240):
        found = ask(rows * 2.0**power) * 2.0**-power
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12 * expected.norm().item())


@pytest.mark.parametrize("name", [name for name in RULES if name not in BY_COLUMN])
def test_a_round_too_long_to_compare_has_diverged(name, ask):
    """What is left of the sums would choose by the order of the rows."""
    for length in (1e160, 1e300):
        with pytest.raises(DivergedError, match="update"):
            ask(world.honest_updates(H).double() * length)


@pytest.mark.parametrize("name", [name for name in RULES if name not in NOT_ROBUST])
def test_a_few_rows_however_long_do_no_harm(name, ask):
    honest = world.honest_updates(H).double()
    cases = product((1e60, 1e80, 1e153, 1e160, 1e300, 1.7e308), (4, None), ([1.0, 1.0, 1.0], [1.0, -1.0, 1.0]))
    for length, entries, signs in cases:
        hostile = honest[:F].clone()
        hostile[:, :entries] = length * torch.tensor(signs)[:, None]
        update = ask(torch.cat([honest, hostile]))
        assert update.norm() <= (H + F if name == "clipped_sum" else 10) * honest.norm(dim=1).max()
