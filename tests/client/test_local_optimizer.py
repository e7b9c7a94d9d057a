"""Local steps of torch's optimizers against one client after the other."""

from copy import deepcopy

import pytest
import torch

from lightning_fl import Samples, SettingError
from lightning_fl.checks import check_model
from lightning_fl.client.local_optimizer import LocalOptimizer
from lightning_fl.client.local_sgd import LocalSgd
from lightning_fl.client.sign import Sign
from lightning_fl.contract import world
from lightning_fl.network.parameters import flatten, trainable
from lightning_fl.round import Round
from tests.client.test_local_sgd import ROUND, clients


@pytest.mark.parametrize(
    ("name", "options"),
    [("Adam", {}), ("AdamW", {"weight_decay": 0.1}), ("RMSprop", {"momentum": 0.9}), ("Adagrad", {}), ("Muon", None)],
)
def test_agrees_with_torch_s_own_loop(name, options):
    if not hasattr(torch.optim, name):
        pytest.skip(f"torch {torch.__version__} has no {name}")
    batch, model = clients(), torch.nn.Sequential(torch.nn.Linear(2, 3, bias=False))  # Muon takes matrices alone
    result = LocalOptimizer(name, options, steps=3, learning_rate=0.05).updates(model, batch, ROUND)
    for row, indices in zip(result.updates, batch.indices, strict=True):
        local = deepcopy(model)
        optimizer = getattr(torch.optim, name)(local.parameters(), lr=0.05, **(options or {}))
        x, y = batch.samples.gather(indices)
        for _ in range(3):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(local(x), y).backward()
            optimizer.step()
        moved = flatten(trainable(model).values()) - flatten(trainable(local).values())
        torch.testing.assert_close(row, moved / 0.3, rtol=1e-4, atol=1e-5)
    assert result.sample_gradients == 3 * 24


@pytest.mark.parametrize("counted", [{"steps": 4}, {"epochs": 2}])
def test_sgd_is_local_sgd(counted):
    """Mini-batches of three: who has more samples takes more steps of an epoch."""
    settings, model = {"batch_size": 3, **counted}, world.model()
    found = LocalOptimizer("SGD", {"momentum": 0.5}, learning_rate=None, **settings).updates(model, clients(), ROUND)
    expected = LocalSgd(momentum=0.5, **settings).updates(model, clients(), ROUND)
    torch.testing.assert_close(found.updates, expected.updates, rtol=1e-4, atol=1e-5)
    assert torch.equal(found.losses, expected.losses)
    assert found.sample_gradients == expected.sample_gradients


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"options": {"lr": 5.0}}, r"has one rate, got lr=5\.0 among its options; set client\.learning_rate"),
        ({"optimizer": "Adan"}, r"needs a name of torch.optim, such as AdamW, got 'Adan'"),
        ({"optimizer": "Adamm"}, r"got 'Adamm'; did you mean Adam\?"),
        ({"optimizer": "Optimizer"}, r"needs a name of torch.optim"),
        ({"optimizer": "LBFGS"}, r"torch.optim.LBFGS cannot step, got lr: .*, or choose a client.optimizer that"),
        ({"optimizer": "SparseAdam"}, r"torch.optim.SparseAdam cannot step"),
        (
            {"options": {"beta": 0.9}},
            r"torch.optim.Adam cannot step, got lr, beta=0.9: .*'beta'.*; correct client.options",
        ),
        ({"options": {"betas": [2.0, 0.9]}}, r"Invalid beta parameter"),
        ({"epochs": 1, "sampling": "epoch"}, r"goes through whole epochs, got sampling=epoch"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        LocalOptimizer(**settings)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch before 2.9 has no Muon")
def test_a_model_that_the_optimizer_does_not_take_is_refused_before_training():
    wrapped, model = Sign(LocalOptimizer("Muon")), torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))
    with pytest.raises(SettingError, match=r"torch.optim.Muon cannot train Sequential, got lr: Muon only supports 2D"):
        check_model(model, wrapped, Samples(torch.zeros(2, 4), torch.arange(2), 3))


def test_where_the_server_stays_nothing_is_sent():
    """A schedule may begin at 0."""
    batch, model = clients(), world.model()
    result = LocalOptimizer().updates(model, batch, Round(0, 0.0, 0))
    assert not result.updates.any()
    assert result.losses.isfinite().all()
