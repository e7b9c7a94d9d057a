from functools import partial
from math import exp, inf, sqrt

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

import lightning_fl as fl
from lightning_fl import Round, SettingError
from lightning_fl.client.gradient import Gradient
from lightning_fl.client.private import Private
from tests.aggregator import reference


@pytest.mark.parametrize("clip", [1.0, 5.0])
def test_long_rows_are_clipped(clip):
    rows = torch.as_tensor(reference.Z).clone()
    Private(Gradient(), clip, noise_multiplier=0.0).send(rows, list(range(len(rows))), Round(0, 0.1, 0))
    expected = [x * min(1, clip / np.linalg.norm(x)) if x.any() else x for x in np.asarray(reference.Z)]
    np.testing.assert_allclose(rows, expected, rtol=1e-12)


def test_noise_is_each_client_s_own_and_follows_seed_and_round():
    client = Private(Gradient(), clip=2.0, noise_multiplier=1.1)

    def noise(ids, t=0, seed=0):
        rows = torch.zeros(len(ids), 50_000)
        client.send(rows, ids, Round(t, 0.1, seed))
        return rows

    both = noise([3, 8])
    assert both.std(1).tolist() == pytest.approx([2.2, 2.2], rel=0.02)
    assert abs(both[0] @ both[1]).item() < 0.05 * both[0].norm() * both[1].norm()
    assert torch.equal(noise([8])[0], both[1])
    assert not torch.equal(noise([8], t=1)[0], both[1])
    assert not torch.equal(noise([8], seed=1)[0], both[1])
    assert noise(list(range(7))).mean(0).std().item() == pytest.approx(2 * 1.1 / sqrt(7), rel=0.02)


@pytest.mark.parametrize(("sigma", "uploads"), [(1.0, 1), (4.0, 100), (2.0, 300)])
def test_epsilon_is_what_gaussians_give_together(sigma, uploads):
    """The probability of telling N(0, 1) from N(mu, 1), mu = sqrt(T) / sigma, beyond e^epsilon is delta."""
    pytest.importorskip("dp_accounting")
    found = Private(Gradient(), noise_multiplier=sigma, delta=1e-5).privacy(uploads)
    epsilon, mu = found["epsilon"], sqrt(uploads) / sigma
    assert found == {"epsilon": epsilon, "delta": 1e-5, "uploads": uploads}
    beyond = norm.cdf(mu / 2 - epsilon / mu) - exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert beyond == pytest.approx(1e-5, rel=1e-3)
    assert Private(Gradient(), noise_multiplier=0.0, delta=1e-5).privacy(1)["epsilon"] == inf


def test_without_the_library_there_is_no_epsilon(monkeypatch):
    monkeypatch.setattr("lightning_fl.client.private.find_spec", lambda name: None)
    assert Private(Gradient()).privacy(10) is None
    with pytest.raises(SettingError, match=r"private needs dp-accounting .* pip install \"lightning-fl\[privacy\]\"\."):
        Private(Gradient(), delta=1e-5)


class Telling(Private):
    """It tells an epsilon, whatever is installed."""

    def privacy(self, rounds):
        return {"epsilon": 1.0, "delta": 1e-5, "uploads": rounds}


@pytest.mark.parametrize(
    ("rule", "held_out", "schedule", "message"),
    [
        (fl.aggregator.ServerOnly(), False, None, "computes on no client's samples, got data.server_held_out=false"),
        (fl.aggregator.Average(), False, ReduceLROnPlateau, "does not follow clients' losses, got a schedule that"),
        (fl.aggregator.ServerOnly(), True, None, None),
        (fl.aggregator.Average(), False, None, None),
    ],
)
def test_what_steers_a_run_without_noise_has_no_epsilon(rule, held_out, schedule, message):
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    y = torch.arange(60) % 2
    data = fl.TensorData((x, y), (x, y), n_clients=3, server_samples=2, server_held_out=held_out)

    def train(client):
        return fl.train(partial(nn.Linear, 3, 2), data, rule, client=client, schedule=schedule, rounds=2)

    assert train(Private(Gradient())).summary["privacy"] is None
    if message is None:
        assert train(Telling(Gradient())).summary["privacy"]["uploads"] == 2
    else:
        with pytest.raises(SettingError, match=message):
            train(Telling(Gradient()))
