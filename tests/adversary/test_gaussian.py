from dataclasses import replace

import pytest
import torch

from lightning_fl import SettingError, Updates
from lightning_fl.adversary.gaussian import Gaussian
from lightning_fl.client.local_sgd import LocalSgd
from lightning_fl.contract import world
from lightning_fl.network.parameters import flatten, trainable


def wide_context(d=4000, learning_rate=0.1):
    """A model with many parameters, to see the noise's size; its weights are all 7."""
    model = torch.nn.Linear(d, 1, bias=False)
    torch.nn.init.constant_(model.weight, 7.0)
    return replace(world.context(learning_rate=learning_rate), model=model)


def send(adversary, context):
    d = sum(p.numel() for p in context.model.parameters())
    return adversary.attack(Updates(torch.zeros(3, d)), 5, context)


def reported_models(update, context):
    return flatten(trainable(context.model).values()) - context.round.learning_rate * update


@pytest.mark.parametrize(("space", "of"), [("parameters", "offsets"), ("models", "models"), ("updates", "updates")])
def test_noise_has_the_stated_size_in_its_space(space, of):
    context = wide_context()
    update = send(Gaussian(200.0, space), context)
    models = reported_models(update, context)
    noise = {"offsets": models - 7.0, "models": models, "updates": update}[of].double()
    # 20,000 draws: the sample std has a relative error of 0.5 %, the mean one of 1.4.
    assert noise.std().item() == pytest.approx(200, rel=0.03)
    assert abs(noise.mean().item()) < 7
    assert torch.corrcoef(noise).fill_diagonal_(0).abs().max() < 0.1  # attackers do not collude


def test_noise_models_do_not_depend_on_the_global_model():
    here = wide_context()
    there = replace(here, model=torch.nn.Linear(4000, 1, bias=False))
    attack = Gaussian(1e4, "models")
    torch.testing.assert_close(
        reported_models(send(attack, here), here), reported_models(send(attack, there), there), rtol=1e-5, atol=1e-2
    )


@pytest.mark.parametrize("space", ["parameters", "models"])
def test_a_model_is_reported_at_the_rate_of_the_client_s_steps(space):
    own = LocalSgd(2, "difference", learning_rate=0.01)
    update = send(Gaussian(200.0, space), replace(wide_context(learning_rate=1.0), client=own))
    assert (0.01 * update).std().item() == pytest.approx(200, rel=0.03)


def test_refuses_to_report_a_model_at_rate_0():
    context = wide_context(learning_rate=0.0)
    assert send(Gaussian(1.0, "updates"), context).isfinite().all()
    with pytest.raises(SettingError, match="learning rate > 0"):
        send(Gaussian(1.0, "parameters"), context)
