"""The origin in the middle of more than half of the weight."""

import pytest
import torch

from lightning_fl.aggregator.majority import centre_on_majority, move_origin

WEIGHTS = {"equal": [0.2] * 5, "one more than half": [0.6, 0.1, 0.1, 0.1, 0.1]}


def by_loop(x, weights):
    """The row with the smallest ball around it that holds more than half of the weight, and its radius."""
    found = []
    for i, row in enumerate(x):
        held = 0.0
        for distance, weight in sorted((float((row - other).norm()), w) for other, w in zip(x, weights, strict=True)):
            held += weight
            if held > 0.5 + 1e-9:
                found.append((distance, i))
                break
    radius, i = min(found)
    return i, radius


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", ["random", "clustered"])
def test_agrees_with_the_loop(name, weights, draw):
    x = torch.randn(5, 3, generator=draw, dtype=torch.float64)
    x[3:] += 50.0 * (name == "clustered")
    shares = torch.tensor(WEIGHTS[weights], dtype=torch.float64)
    i, radius = by_loop(x, shares.tolist())
    gram, distances, found = centre_on_majority(x @ x.T, shares)
    moved = x - x[i]
    torch.testing.assert_close(gram, moved @ moved.T)
    torch.testing.assert_close(distances, moved.square().sum(1))
    assert found == pytest.approx(radius, abs=1e-7)


@pytest.mark.parametrize("far", [1e3, 1e9])
def test_fewer_than_half_do_not_move_it_away(far, draw):
    x = torch.randn(7, 4, generator=draw, dtype=torch.float64)
    x[4:] = far
    distances, radius = centre_on_majority(x @ x.T, torch.full((7,), 1 / 7, dtype=torch.float64))[1:]
    honest = torch.cdist(x[:4], x[:4]).max().item()
    assert int((distances == 0).nonzero()[0]) < 4
    assert radius <= honest * (1 + 1e-6)


def test_half_of_the_weight_is_no_majority():
    """Rows at 0, 1, 3 and 7: three must be in the ball, which around 1 reaches 3."""
    x = torch.tensor([[0.0], [1.0], [3.0], [7.0]], dtype=torch.float64)
    _, distances, radius = centre_on_majority(x @ x.T, torch.full((4,), 0.25, dtype=torch.float64))
    assert distances.tolist() == [1.0, 0.0, 4.0, 36.0]
    assert radius == 2.0


def test_an_origin_is_moved_in_place():
    x = torch.tensor([[1.0, 2.0], [3.0, -1.0]], dtype=torch.float64)
    gram = x @ x.T
    assert move_origin(gram, 1) is gram
    assert gram.tolist() == [[13.0, 0.0], [0.0, 0.0]]
