"""How clients are dealt out; rounds over processes are in tests/strategy and tests/updates/test_exchange.py."""

import pytest
import torch

from lightning_fl import ClientBatch
from lightning_fl.client.dealt import costs, homes
from lightning_fl.client.gradient import Gradient
from lightning_fl.client.local_sgd import LocalSgd
from lightning_fl.contract import world


def clients():
    return ClientBatch(world.samples(8), list(torch.arange(24).split([5, 8, 1, 10])), range(4))


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        (Gradient(), [5, 8, 1, 10]),
        (Gradient(batch_size=6), [5, 6, 1, 6]),
        (LocalSgd(batch_size=6, epochs=2), [5, 8, 1, 10]),  # who has more samples takes more steps
    ],
)
def test_a_client_costs_the_samples_of_a_step_or_of_its_epochs(client, expected):
    assert costs(client, clients()) == expected


def test_one_process_is_nobody_s_home():
    kept = LocalSgd(momentum=0.5, momentum_reset=False)
    kept.prepare(world.model(), clients())
    assert homes(kept, clients()) == {}
