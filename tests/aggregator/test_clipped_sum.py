import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_fl import Updates
from lightning_fl.aggregator.clipped_sum import ClippedSum
from lightning_fl.contract import hostile, world

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


def test_trust_is_the_share_of_the_clipped_lengths():
    """Three rows at the radius, one shorter, one that adds nothing: 2, 2, 2 and 1 of 7."""
    rows = torch.tensor([[2.0, 0.0], [0.0, -3e4], [3e30, 4e30], [1.0, 0.0], [torch.nan, 0.0]])
    aggregation = ClippedSum(2.0, "huber").aggregate(Updates(rows), world.oracle())
    torch.testing.assert_close(aggregation.trust, torch.tensor([2.0, 2.0, 2.0, 1.0, 0.0]).double() / 7)
    nothing = ClippedSum(2.0, "huber").aggregate(Updates(torch.zeros(3, 2)), world.oracle())
    assert nothing.trust.tolist() == [0.0, 0.0, 0.0]
