import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.server.anytime import Anytime


def test_parameters_are_the_weighted_mean_of_the_models(draw):
    """x_t = sum_s s w_s / sum_s s, while the rate changes; a round without a gradient changes nothing."""
    x = torch.nn.Parameter(torch.randn(3, generator=draw, dtype=torch.float64))
    server, w, models = Anytime([x]), x.detach().clone(), []
    for t in range(1, 8):
        server.param_groups[0]["lr"] = 0.5 / t
        x.grad = torch.randn(3, generator=draw, dtype=torch.float64)
        w = w - 0.5 / t * x.grad
        models.append(w)
        server.step()
        shares = torch.arange(1, t + 1, dtype=torch.float64) / (t * (t + 1) / 2)
        torch.testing.assert_close(x.detach(), shares @ torch.stack(models))
    x.grad, before = None, x.detach().clone()
    server.step()
    assert torch.equal(x, before)


def test_a_rate_of_zero_is_refused():
    with pytest.raises(SettingError, match=r"anytime needs lr > 0, got 0"):
        Anytime([torch.nn.Parameter(torch.zeros(1))], lr=0)
