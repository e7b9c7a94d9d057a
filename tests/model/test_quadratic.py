"""The quadratic has the constants that it says, in the framework as on paper."""

import math

import pytest
import torch
from hydra.utils import instantiate

from lightning_fl import ClientBatch, FederatedModule, SettingError
from lightning_fl.client.gradient import Gradient
from lightning_fl.contract import conf
from lightning_fl.model.quadratic import Quadratic
from lightning_fl.run.assemble import make_model
from tests import training

SETTING = ("data=quadratic", "model=quadratic", "partition=pathological", "schedule=constant", "adversary=none")


def made(*more):
    """Data and module of 100 clients with two classes each."""
    config = conf.compose(*SETTING, *more, "run_dir=unused", "run_name=unused").copy()
    config.federation.n_byzantine = 0
    federation, partition = (instantiate(config[key], _convert_="all") for key in ("federation", "partition"))
    data = instantiate(config.data, federation=federation, partition=partition, _convert_="all")
    module = FederatedModule(make_model(config), Gradient(), instantiate(config.server))
    return data, module


def test_curvature_and_minimiser(draw):
    model, x = Quadratic(3, mu=1.0, lipschitz=5.0), torch.randn(7, 3, generator=draw)
    none = torch.zeros(7, dtype=torch.int64)
    hessian = torch.autograd.functional.hessian(lambda w: model.sample_losses(w - x, none).mean(), torch.ones(3))
    torch.testing.assert_close(hessian, torch.diag(torch.tensor([1.0, 3.0, 5.0])))
    at = x.mean(0).clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model.sample_losses(at - x, none).mean(), at)
    assert gradient.norm() < 1e-5


def test_the_noise_of_one_sample():
    data, _ = made("data.n_train=20000")
    data.setup()
    model = Quadratic(10, mu=1.0, lipschitz=4.0)
    members = [(data.train.targets == z).nonzero().flatten() for z in range(10)]
    singles = ClientBatch(data.train, members[3].split(1), range(len(members[3])))
    gradients = Gradient().gradients(model, singles).updates
    variance = (gradients - gradients.mean(0)).square().sum(1).mean()
    assert variance == pytest.approx(model.curvatures.square().sum().item(), rel=0.05)  # 2,000 samples: 1.5 % s.d.


def test_gradient_descent_contracts_as_its_constants_say():
    """At rate 1 / L the distance to the minimiser falls by 1 - mu / L a round at least, in the whole framework."""
    data, module = made("server.lr=0.25")
    data.setup()
    minimiser = torch.stack([data.train.inputs[index].mean(0) for index in data.clients.indices]).mean(0)
    distances = [minimiser.norm().item()]
    for rounds in (1, 2, 10):
        data, module = made("server.lr=0.25")
        module = training.fit(training.trainer(rounds=rounds), module, data)
        distances.append((module.model.w - minimiser).norm().item())
        assert distances[-1] <= (1 - 1 / 4) ** rounds * distances[0] * (1 + 1e-5)
    assert distances[1] > 0.25 * distances[0]  # not at once: mu and L differ


@pytest.mark.parametrize(
    ("settings", "needs"),
    [
        ((0, 1.0, 2.0), "n_classes >= 1, got 0"),
        ((3, 0.0, 2.0), "mu > 0, got 0.0"),
        ((3, 2.0, 1.0), "mu <= lipschitz, got 2.0 and 1.0"),
        ((3, 1.0, math.inf), "a finite lipschitz > 0, got inf"),
    ],
)
def test_settings_out_of_range(settings, needs):
    with pytest.raises(SettingError, match=f"quadratic needs {needs}"):
        Quadratic(*settings)
