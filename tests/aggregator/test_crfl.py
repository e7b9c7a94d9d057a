import numpy as np
import pytest
import torch

from lightning_fl import SettingError, Updates
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.crfl import Crfl
from tests.aggregator.server import Server

W = torch.tensor([1.5, -2.0, 0.5, 1.0]).double()
UPDATE = torch.tensor([[0.5, 1.0, -2.0, 0.25]]).double()


def after(rule, t):
    """The model after a plain server's step."""
    return W - 0.4 * rule.aggregate(Updates(UPDATE), Server(W, t - 1, 0.4)).update


@pytest.mark.parametrize(("t", "limit"), [(1, 2.1), (3, 2.3)])
def test_small_problem(t, limit):
    """w - eta a = (1.3, -2.4, 1.3, 0.9), of length sqrt(9.95) = 3.15."""
    moved = np.array([1.3, -2.4, 1.3, 0.9])
    np.testing.assert_allclose(after(Crfl(Average(), sigma=0.0), t), moved * limit / 9.95**0.5, rtol=1e-12)


def test_a_short_model_stays():
    np.testing.assert_allclose(after(Crfl(Average(), offset=4.0, sigma=0.0), 1), [1.3, -2.4, 1.3, 0.9], rtol=1e-12)
    capped = after(Crfl(Average(), offset=4.0, cap=1.0, sigma=0.0), 1)
    assert capped.norm().item() == pytest.approx(1)


def test_noise_comes_after_clipping_in_all_rounds_but_the_last():
    clean = after(Crfl(Average(), sigma=0.0), 3)
    noise = [after(Crfl(Average(), sigma=sigma, n_rounds=n), 3) - clean for sigma, n in [(0.1, 4), (0.2, 4), (0.1, 3)]]
    torch.testing.assert_close(2 * noise[0], noise[1])
    assert (noise[0].abs() > 1e-6).all()
    assert noise[2].abs().max() < 1e-12
    assert not torch.allclose(after(Crfl(Average()), 4) - after(Crfl(Average(), sigma=0.0), 4), noise[0] / 10)


def test_a_server_that_stands_still_cannot_be_clipped():
    with pytest.raises(SettingError, match=r"crfl needs a finite learning rate above 0, got 0\.0; change"):
        Crfl(Average()).aggregate(Updates(UPDATE), Server(W, 0, 0.0))
