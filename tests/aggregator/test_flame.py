import numpy as np
import pytest
import torch
from sklearn.cluster import HDBSCAN

from lightning_fl import DivergedError, SettingError, Updates
from lightning_fl.aggregator.flame import Flame, majority_cluster, model_distances
from lightning_fl.client.local_sgd import LocalSgd
from lightning_fl.contract import world
from tests.aggregator import reference
from tests.aggregator import reference_peers as peers
from tests.aggregator.server import Server

N, D = 11, 6
MODEL = torch.linspace(-2, 3, D, dtype=torch.float64)


def flame(x, model, rate, noise=0.0, draw=None):
    return Flame(noise)(x, Server(model, learning_rate=rate, draw=draw))


@pytest.mark.parametrize("rate", [0.01, 1.0])
@pytest.mark.parametrize("n", [1, 2, 3, 10, 11])
@pytest.mark.parametrize("name", ["random", "rank-deficient", "badly scaled"])
def test_agrees_with_the_loop(name, n, rate):
    x = reference.problem(name, n, D)
    expected, _ = peers.flame(x, MODEL.numpy(), rate)
    np.testing.assert_allclose(flame(torch.as_tensor(x), MODEL, rate).numpy(), expected, rtol=1e-9)


def test_literal():
    """Models near (1, 1, 1): rows 0, 1, 2 and 4 are the first four of seven to be joined; S = 0.1 sqrt(7.85).

    By the cosine of the updates instead of the models row 3 would join before row 4; of the four only row 4 is longer
    than the median.
    """
    z = torch.tensor(reference.Z, dtype=torch.float64)
    result, found = peers.flame(reference.Z, [1, 1, 1], 0.1)
    assert found["admitted"] == [0, 1, 2, 4]
    assert found["S"] == pytest.approx(0.1 * 7.85**0.5)
    assert found["joined"] == pytest.approx(0.00152954, rel=1e-5)
    np.testing.assert_allclose(result, [0.9871558, 2.055619, -1.1369264], atol=1e-6)
    expected = (z[:3].sum(0) + z[4] * (7.85 / 10.28) ** 0.5) / 4
    torch.testing.assert_close(flame(z, torch.ones(3).double(), 0.1), expected)


@pytest.mark.parametrize("seed", range(30))
def test_admits_whom_hdbscan_clusters(seed):
    draw = torch.Generator().manual_seed(seed)
    n = 5 + seed
    x = torch.randn(n, D, generator=draw, dtype=torch.float64)
    x[: n // 3] += 2
    unit = torch.nn.functional.normalize(MODEL - 0.1 * x)
    distances = (unit[:, None] - unit).square().sum(2) / 2
    labels = HDBSCAN(
        min_cluster_size=n // 2 + 1, min_samples=1, metric="precomputed", allow_single_cluster=True, copy=True
    ).fit_predict(distances.numpy())
    assert majority_cluster(distances).tolist() == np.flatnonzero(labels == 0).tolist()


def test_models_that_differ_by_little_keep_their_distances(draw):
    """||w|| = 1e4 and eta ||x|| = 1e-3: 1 - cosine is about 1e-14."""
    x = 1e-2 * torch.randn(N, 1000, generator=draw, dtype=torch.float64)
    w = torch.randn(1000, generator=draw, dtype=torch.float64)
    w, rate = 1e4 * w / w.norm(), 1e-3 / 0.3
    away = x - (x @ w)[:, None] * w / w.square().sum()
    expected = rate**2 * (away[:, None] - away).square().sum(2) / (2 * 1e8)
    assert 1e-15 < expected.max() < 1e-13
    distances = (x[:, None] - x).square().sum(2)
    found = model_distances(distances, x @ x.T, x @ w, w.square().sum(), rate)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=0)


def test_models_of_very_different_lengths_keep_their_angles(draw):
    """Beside one of 1e30 the difference of lengths is the length of the difference."""
    x = torch.randn(N, D, generator=draw, dtype=torch.float64) * torch.logspace(-5, 30, N, dtype=torch.float64)[:, None]
    unit = torch.nn.functional.normalize(MODEL - 0.1 * x)
    expected = (unit[:, None] - unit).square().sum(2) / 2
    distances = (x[:, None] - x).square().sum(2)
    found = model_distances(distances, x @ x.T, x @ MODEL, MODEL @ MODEL, 0.1)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-14)


def test_of_no_model_the_updates_angles_count(draw):
    """w = 0: as with any w along nothing; a model of zero is at distance 1."""
    x = torch.randn(N, D, generator=draw, dtype=torch.float64)
    unit = torch.nn.functional.normalize(x)
    inner = x @ x.T
    squares = inner.diagonal()
    apart = squares[:, None] + squares - 2 * inner
    zero = torch.zeros(N, dtype=torch.float64)
    torch.testing.assert_close(model_distances(apart, inner, zero, zero[0], 0.3), 1 - unit @ unit.T)
    found = flame(x, torch.zeros(D).double(), 0.3)
    expected, _ = peers.flame(x.numpy(), np.zeros(D), 0.3)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9)
    x[4] = 0
    assert flame(x, torch.zeros(D).double(), 0.3).isfinite().all()
    assert flame(0 * x, torch.zeros(D).double(), 0.3).tolist() == [0] * D


def test_equal_updates_are_their_mean():
    x = torch.full((5, D), 0.1)
    torch.testing.assert_close(flame(x, MODEL.float(), 0.5), x[0])


def test_scale_and_order(draw):
    """s x at the rate eta / s makes the same models."""
    x = torch.randn(N, D, generator=draw, dtype=torch.float64)
    order = torch.randperm(N, generator=draw)
    torch.testing.assert_close(flame((1e3 * x)[order], MODEL, 1e-4), 1e3 * flame(x, MODEL, 0.1))


def test_noise_is_relative_to_the_median_norm(draw):
    """Around the result without noise, with standard deviation lambda times the median norm in every parameter."""
    x = torch.randn(5, 20_000, generator=draw)
    w = torch.randn(20_000, generator=draw)
    plain = flame(x, w, 0.1)
    noisy = flame(x, w, 0.1, 0.05, torch.Generator().manual_seed(1))
    again = flame(x, w, 0.1, 0.05, torch.Generator().manual_seed(1))
    assert torch.equal(noisy, again)
    drawn = (noisy - plain) / (0.05 * x.norm(dim=1).median())
    assert drawn.std().item() == pytest.approx(1, abs=0.02)
    assert drawn.mean().item() == pytest.approx(0, abs=0.03)


def test_the_class_takes_model_and_rate_of_the_server():
    x, server = world.honest_updates(N), world.oracle(0.3)
    aggregation = Flame(noise=0.0).aggregate(Updates(x), server)
    torch.testing.assert_close(aggregation.update, flame(x, server.parameters, 0.3))
    torch.testing.assert_close(aggregation.weights.float() @ x, aggregation.update)
    admitted = aggregation.weights > 0
    assert aggregation.diagnostics["admitted"] == int(admitted.sum()) >= N // 2 + 1
    assert aggregation.trust.sum().item() == pytest.approx(1)
    assert torch.equal(aggregation.trust > 0, admitted)
    assert aggregation.trust.max() == aggregation.trust[admitted].min()  # whatever is clipped
    assert len(set(aggregation.weights[admitted].tolist())) > 1
    assert aggregation.diagnostics["radius"] == pytest.approx(np.median(x.norm(dim=1)), rel=1e-6)
    noisy = Flame(noise=0.1).aggregate(Updates(x), server)
    torch.testing.assert_close(noisy.update, flame(x, server.parameters, 0.3, 0.1, server.generator("flame")))
    assert not torch.allclose(noisy.update, aggregation.update)


def test_the_models_are_those_that_the_clients_have():
    """Three local steps at a rate of their own, whose mean gradient is uploaded: a model is three of those away."""
    x, server = world.honest_updates(N), world.oracle(0.3)
    server.client = LocalSgd(3, upload="mean_gradient", learning_rate=0.5)
    ours = Flame(noise=0.0).aggregate(Updates(x), server)
    torch.testing.assert_close(ours.update, flame(x, server.parameters, 3 * 0.5))


def test_errors():
    x, w = torch.randn(N, D), torch.randn(D)
    with pytest.raises(SettingError, match="a finite learning rate above 0, got 0"):
        flame(x, w, 0.0)
    with pytest.raises(SettingError, match="a finite learning rate above 0, got 0"):
        Flame(0.0).aggregate(world.updates(), world.oracle(0.0))
    with pytest.raises(DivergedError, match="flame needs a finite model"):
        flame(x, w * torch.nan, 0.1)
    with pytest.raises(SettingError, match="length 6, got 5"):
        flame(x, w[:5], 0.1)
