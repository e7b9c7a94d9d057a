import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_fl import Updates
from lightning_fl.aggregator.normalized import Normalized
from lightning_fl.contract import hostile, world
from tests.aggregator import reference


@pytest.mark.parametrize("d", [1023, 1024, 1025, 10_000])
def test_agrees_with_the_loop_in_long_rows(d, draw):
    x = torch.randn(7, d, generator=draw)
    expected = reference.normalized_average(x.double().numpy())
    np.testing.assert_allclose(Normalized()(x).numpy(), expected, rtol=0, atol=1e-7)


def test_literal():
    """By hand.  Normalised once more: (0.316, 0.949); each coordinate by itself: (0.5, 1); not at all: (1.5, 12)."""
    x = torch.tensor([[3.0, 4.0], [0.0, 20.0]])
    torch.testing.assert_close(Normalized()(x), torch.tensor([0.3, 0.9]))
    torch.testing.assert_close(Normalized()(x, weights=torch.tensor([3.0, 1.0])), torch.tensor([0.45, 0.85]))


@pytest.mark.parametrize("nothing", [0.0, float("nan"), float("inf"), float("-inf")])
def test_a_row_without_direction_adds_nothing_and_the_others_keep_their_share(nothing):
    """Sharing its weight among the others would give (0.6, 0.8)."""
    x = torch.tensor([[3.0, 4.0], [nothing, nothing]])
    torch.testing.assert_close(Normalized()(x), torch.tensor([0.3, 0.4]))


def test_rows_without_direction_add_up_to_nothing():
    assert torch.equal(Normalized()(torch.zeros(3, 2)), torch.zeros(2))


@pytest.mark.parametrize("scale", [1e-30, 1e-18, 1e18, 1e30])
def test_length_does_not_count_where_float32_squares_overflow_or_vanish(scale, draw):
    x = torch.randn(5, 300, generator=draw)
    huge = x.clone()
    huge[2] *= scale
    torch.testing.assert_close(Normalized()(huge), Normalized()(x), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(Normalized()(-x), -Normalized()(x))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 30), hostile.lists(5, also=[1e-40]), st.sampled_from([1, None]))
def test_hostile_rows_move_it_by_their_share(seed, values, entries):
    draw = torch.Generator().manual_seed(seed)
    honest = torch.randn(11, 7, generator=draw) + torch.randn(7, generator=draw)
    result = Normalized()(hostile.rows(honest, values, entries))
    share = len(values) / (11 + len(values))
    assert result.norm() <= 1 + 1e-6
    assert (result - (1 - share) * Normalized()(honest)).norm() <= share + 1e-6


@pytest.mark.parametrize("broken", [False, True])
def test_weights_and_trust(broken):
    rows = world.honest_updates()
    if broken:
        rows[3] = torch.nan
    updates = Updates(rows, torch.arange(1.0, 13.0))
    aggregation = Normalized().aggregate(updates, world.oracle())
    assert (aggregation.weights[3] == 0) == broken
    trust = [0.0 if broken and i == 3 else (i + 1) / 78 for i in range(12)]  # data weights, whatever the lengths
    assert aggregation.trust.tolist() == pytest.approx(trust)
