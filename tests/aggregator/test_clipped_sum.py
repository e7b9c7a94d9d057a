import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_fl import SettingError, Updates
from lightning_fl.aggregator.clipped_sum import ClippedSum
from lightning_fl.contract import hostile, world
from tests.aggregator import reference

N, D = 9, 6
P = {"l1": 1, "l2": 2, "linf": np.inf}
PENALTY = {"l1": "linf", "l2": "l2", "linf": "l1"}  # whose gradient the norm bounds


@pytest.mark.parametrize(
    ("norm", "expected"), [("l2", [1.2, 0.8]), ("linf", [1.35, 1.0]), ("l1", [3 / 7 + 0.6, 4 / 7])]
)
def test_literal(norm, expected):
    """By hand.  In l2, the mean would be (0.6, 0.4); every row at the radius (1.6, 0.8); the sum clipped (0.67, 0.74).

    In linf, each coordinate clipped by itself would give (1.6, 1), another direction than the client's.
    """
    x = torch.tensor([[3.0, 4.0], [0.6, 0.0]])
    torch.testing.assert_close(ClippedSum(1.0, PENALTY[norm])(x), torch.tensor(expected))


@pytest.mark.parametrize(
    ("norm", "gradient"),
    [
        ("l2", lambda z: z / z.norm(dim=1, keepdim=True).clamp(min=1e-3)),  # Huber, FRPG eq. 30
        ("l2", lambda z: z / z.norm(dim=1, keepdim=True)),
        ("linf", torch.sign),  # l1, RSA
        ("linf", lambda z: z / z.abs().clamp(min=0.5)),  # Huber of each coordinate
        ("l1", lambda z: z.sign() * (z.abs() == z.abs().amax(1, keepdim=True))),  # linf
    ],
)
def test_changes_no_honest_message(norm, gradient, draw):
    """Penalty gradients of any models, and the mean of several (LFRPG), are summed as they are."""
    scale = torch.logspace(-5, 5, 3 * N, dtype=torch.float64)[:, None]
    messages = 1.6 * gradient(scale * torch.randn(3 * N, D, generator=draw, dtype=torch.float64))
    torch.testing.assert_close(ClippedSum(1.6, PENALTY[norm])(messages), messages.sum(0))
    means = messages.view(N, 3, D).mean(1)
    torch.testing.assert_close(ClippedSum(1.6, PENALTY[norm])(means), means.sum(0))


@pytest.mark.parametrize("norm", P)
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 30), hostile.lists(N), st.sampled_from([1, None]))
def test_a_hostile_row_moves_it_by_the_radius_at_most(norm, seed, values, entries):
    honest = torch.randn(N, D, generator=torch.Generator().manual_seed(seed))
    moved = ClippedSum(1.6, PENALTY[norm])(hostile.rows(honest, values, entries)) - ClippedSum(1.6, PENALTY[norm])(
        honest
    )
    assert torch.linalg.vector_norm(moved, P[norm]) <= 1.6 * len(values) + 1e-4


def test_only_broken_rows_are_refused():
    with pytest.raises(SettingError, match="clipped_sum needs at least one update without NaN and inf"):
        ClippedSum(1.0)(torch.full((3, 2), torch.nan))


@pytest.mark.parametrize(("penalty", "norm"), [("huber", "l2"), ("l2", "l2"), ("l1", "linf"), ("linf", "l1")])
def test_the_class_bounds_the_dual_of_the_penaltys_norm(penalty, norm):
    updates = world.updates()
    aggregation = ClippedSum(0.5, penalty).aggregate(updates, world.oracle())
    np.testing.assert_allclose(
        aggregation.update, reference.clipped_sum(updates.rows.double().numpy(), 0.5, P[norm]), rtol=1e-5, atol=1e-5
    )
    torch.testing.assert_close(aggregation.weights.float() @ updates.rows, aggregation.update)
    assert aggregation.weights.max() <= 1
    assert "gram" not in vars(updates)


def test_trust_is_the_share_of_the_clipped_lengths():
    """Three rows at the radius, one shorter, one that adds nothing: 2, 2, 2 and 1 of 7."""
    rows = torch.tensor([[2.0, 0.0], [0.0, -3e4], [3e30, 4e30], [1.0, 0.0], [torch.nan, 0.0]])
    aggregation = ClippedSum(2.0, "huber").aggregate(Updates(rows), world.oracle())
    torch.testing.assert_close(aggregation.trust, torch.tensor([2.0, 2.0, 2.0, 1.0, 0.0]).double() / 7)
    nothing = ClippedSum(2.0, "huber").aggregate(Updates(torch.zeros(3, 2)), world.oracle())
    assert nothing.trust.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("radius", "penalty", "message"),
    [
        (0.0, "l2", "clipped_sum needs radius > 0, got 0.0"),
        (float("nan"), "l2", "radius > 0, got nan"),
        (float("inf"), "l2", "finite radius > 0, got inf"),
        (1.0, "l3", "penalty must be one of huber, l2, l1, linf, got 'l3'"),
    ],
)
def test_refuses_settings_out_of_range(radius, penalty, message):
    with pytest.raises(SettingError, match=message):
        ClippedSum(radius, penalty)


def test_refuses_what_is_no_matrix_of_floats():
    with pytest.raises(SettingError, match=r"\(n, d\)"):
        ClippedSum(1.0)(torch.zeros(0, 3))
    with pytest.raises(SettingError, match="floating point"):
        ClippedSum(1.0)(torch.ones(2, 3, dtype=torch.int64))
