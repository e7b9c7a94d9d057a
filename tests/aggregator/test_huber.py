import numpy as np
import pytest
import torch

from lightning_fl.aggregator.geometric_median import GeometricMedian
from lightning_fl.aggregator.huber import Huber, huber_weights
from lightning_fl.updates.products import gram_matrix
from tests.aggregator import reference
from tests.aggregator import reference_field as field

X = torch.as_tensor(reference.X)


@pytest.mark.parametrize("weights", [[1.0] * 7, [1.0] * 6 + [5.0]])
@pytest.mark.parametrize("radius", [0.5, 1.0, 3.0, 1e6])
def test_agrees_with_the_loop(radius, weights):
    alpha = np.array(weights) / sum(weights)
    expected = field.huber(reference.X, [radius] * 7, alpha)
    found = Huber(radius)(X, weights=torch.tensor(weights).double())
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-7)


def test_between_the_average_and_the_geometric_median():
    torch.testing.assert_close(Huber(1e6)(X), X.mean(0))
    torch.testing.assert_close(Huber(0.01)(X), GeometricMedian(1e-9)(X), atol=1e-4, rtol=0)


def test_a_radius_by_samples():
    """N = 4, 4, 16, 16, 1, 4, 100 and T_i = 2 / sqrt(n_i); the weights count as in the paper's mean, or are equal."""
    samples = np.array([4.0, 4, 16, 16, 1, 4, 100])
    radii = 2 / np.sqrt(samples)
    given = torch.as_tensor(radii)
    for alpha in (samples / samples.sum(), np.full(7, 1 / 7)):
        a = huber_weights(gram_matrix(X), torch.as_tensor(alpha), given)
        np.testing.assert_allclose(a @ X, field.huber(reference.X, radii, alpha), atol=1e-6)
    radius = 2 / samples.mean() ** 0.5
    found = Huber(radius, by_samples=True)(X, weights=torch.as_tensor(samples))
    np.testing.assert_allclose(found, field.huber(reference.X, radii, samples / samples.sum()), atol=1e-6)


@pytest.mark.parametrize("problem", ["random", "tied", "offset"])
def test_the_pulls_cancel(problem):
    """At the minimum sum a_i min(1, T / ||c - x_i||) (x_i - c) = 0."""
    x = torch.as_tensor(reference.problem(problem, 15, 8))
    radius = 2.0 if problem != "offset" else 0.02
    c = Huber(radius)(x)
    away = x - c
    pull = away * (radius / away.norm(dim=1, keepdim=True)).clamp(max=1)
    assert pull.mean(0).norm() < 1e-6 * radius
