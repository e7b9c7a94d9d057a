import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.client.fedprox import FedProx
from lightning_fl.client.local_sgd import LocalSgd
from lightning_fl.contract import world
from lightning_fl.network.parameters import flatten, trainable
from tests.client.test_local_sgd import ROUND, clients, double, model, slow_models


def test_without_a_proximal_term_it_is_fedavg_bit_for_bit():
    ours = FedProx(0.0, steps=4, upload="difference", batch_size=3).updates(world.model(), clients(), ROUND)
    theirs = LocalSgd(4, "difference", batch_size=3).updates(world.model(), clients(), ROUND)
    assert torch.equal(ours.updates, theirs.updates)


@pytest.mark.parametrize("chunk", [1, 3])
def test_agrees_with_a_loop_that_differentiates_the_proximal_term(chunk):
    batch = double(clients())
    uploads = FedProx(0.7, steps=4, upload="difference", client_chunk=chunk).updates(model(), batch, ROUND).updates
    start = flatten(trainable(model()).values())
    for row, indices in zip(uploads, batch.indices, strict=True):
        models, _ = slow_models(indices, batch.samples, 4, rate=0.3, mu=0.7)
        torch.testing.assert_close(row, (start - models[-1]) / 0.3, rtol=1e-10, atol=1e-12)


def test_refuses_a_negative_term():
    with pytest.raises(SettingError, match=r"fed_prox needs mu >= 0, got -1"):
        FedProx(-1.0, steps=2, upload="difference")
