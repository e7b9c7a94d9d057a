"""Attackers' own rate and epochs, against plain autograd on one client after the other."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from lightning_fl import Round, SettingError
from lightning_fl.adversary.bit_flip import BitFlip
from lightning_fl.adversary.label_flip import LabelFlip
from lightning_fl.client.gradient import Gradient
from lightning_fl.client.local_optimizer import LocalOptimizer
from lightning_fl.client.local_sgd import LocalSgd
from lightning_fl.client.top_k import TopK
from lightning_fl.contract import world
from lightning_fl.network.parameters import flatten, trainable


@pytest.mark.parametrize(
    "client",
    [LocalSgd(steps=2, learning_rate=0.2), LocalSgd(steps=2), LocalOptimizer("SGD", steps=2, learning_rate=0.7)],
    ids=["own rate", "server's", "optimizer"],
)
def test_they_step_at_their_own_rate_and_upload_in_honest_units(client):
    """Three full passes at 0.05 on labels 2 - y; divided by the rate by which honest clients divide."""
    context = replace(world.context(), client=client, round=Round(0, 0.3, 0))
    forged = LabelFlip(learning_rate=0.05, epochs=3).attack(world.updates(), 3, context)
    honest_rate = 0.2 if isinstance(client, LocalSgd) and client.learning_rate else 0.3
    for row, indices in zip(forged, context.byzantine.indices, strict=True):
        model, samples = world.model(), context.byzantine.samples
        start = flatten(trainable(model).values()).clone()
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(samples.inputs[indices]), 2 - samples.targets[indices]).backward()
            optimizer.step()
        moved = (start - flatten(trainable(model).values()).detach()) / honest_rate
        torch.testing.assert_close(row, moved, rtol=1e-4, atol=1e-6)
    assert (client.epochs, client.steps) == (None, 2)


def test_what_cannot_be_trained_otherwise_is_refused():
    with pytest.raises(SettingError, match="need clients with local steps of their own, got gradient"):
        BitFlip(learning_rate=0.1).check_client(Gradient())
    with pytest.raises(SettingError, match="uploads the difference of whole epochs, got upload=mean_gradient"):
        BitFlip(epochs=2).check_client(LocalSgd(upload="mean_gradient"))
    BitFlip().check_client(Gradient())
    with pytest.raises(SettingError, match="got gradient"):
        BitFlip(epochs=2).check_client(TopK(Gradient()))
