"""Training takes what a client returns."""

from functools import partial

import pytest
import torch
from torch.optim import SGD

from lightning_fl import FederatedModule, Federation, SettingError
from lightning_fl.client.base import ClientResult
from lightning_fl.client.gradient import Gradient
from lightning_fl.contract import world
from tests import training


class Aside(Gradient):
    """Leaves ``out`` aside and returns what it likes."""

    def __init__(self, change=lambda updates: updates):
        super().__init__()
        self.change = change

    def updates(self, model, batch, this_round, out=None):
        result = super().updates(model, batch, this_round)
        if out is not None:
            out.fill_(torch.nan)
        return ClientResult(self.change(result.updates), result.losses, result.sample_gradients)


def trained(client):
    module = FederatedModule(world.model(), client, partial(SGD, lr=0.1))
    training.fit(training.trainer(rounds=3), module, training.data(Federation(4, 0, "supplement", "uniform")))
    assert module.diverged is None
    return torch.cat([p.detach().flatten() for p in module.parameters()])


@pytest.mark.parametrize(
    "change", [torch.clone, lambda updates: updates.T.contiguous().T], ids=["elsewhere", "by columns"]
)
def test_training_takes_what_a_client_returns(change):
    """Not the memory that it was offered."""
    assert torch.equal(trained(Aside(change)), trained(Gradient()))


@pytest.mark.parametrize(
    ("change", "got"),
    [
        (lambda updates: updates[:1], r"\(1, 9\) of torch.float32"),  # would be repeated for everybody
        (lambda updates: updates.double(), r"\(4, 9\) of torch.float64"),
        (lambda updates: updates[:, 1:], r"\(4, 8\) of torch.float32"),
    ],
)
def test_training_refuses_updates_of_another_shape(change, got):
    with pytest.raises(SettingError, match=rf"client Aside must return one update per client, .*, got {got}\."):
        trained(Aside(change))


class Returning(Gradient):
    """Returns what it was given."""

    def __init__(self, found):
        super().__init__()
        self.found = found

    def updates(self, model, batch, this_round, out=None):
        return self.found


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([torch.zeros(4, 9)], "client Returning must return a ClientResult, got list"),
        (None, "client Returning must return a ClientResult, got NoneType"),
        (
            (torch.zeros(4, 9), torch.zeros(1), 4),
            r"the losses of client Returning must be a tensor of shape \(4,\), got shape \(1,\)",
        ),
    ],
)
def test_training_refuses_what_is_no_result(found, message):
    result = ClientResult(*found) if isinstance(found, tuple) else found
    with pytest.raises(SettingError, match=message):
        trained(Returning(result))
