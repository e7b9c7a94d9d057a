"""Laws of every loss in conf/loss: one loss per sample, each by itself; a round's gradients are plain autograd's."""

import pytest
import torch
from torch import nn

from lightning_fl import ClientBatch, Samples
from lightning_fl.client.gradient import Gradient
from lightning_fl.contract import conf, world
from lightning_fl.contract.device import PretendedDevice
from lightning_fl.loss.base import minimizing

every_loss = pytest.mark.parametrize("name", conf.names("loss"))
C = world.CLASSES


def logits(n, scale=3.0):
    draw = torch.Generator().manual_seed(0)
    return scale * torch.randn(n, C, generator=draw), torch.randint(0, C, (n,), generator=draw)


@every_loss
def test_one_loss_per_sample(name):
    loss, (outputs, targets) = conf.make("loss", name), logits(7)
    kept = outputs.clone(), targets.clone()
    losses = loss(outputs, targets)
    assert losses.shape == (7,)
    assert losses.dtype == outputs.dtype
    alone = torch.cat([loss(outputs[i : i + 1], targets[i : i + 1]) for i in range(7)])
    torch.testing.assert_close(losses, alone)
    assert torch.equal(outputs, kept[0])
    assert torch.equal(targets, kept[1])


@every_loss
def test_losses_are_on_the_gpu_where_the_outputs_are(name):
    """One that is pretended, with its laws; nobody waits for it."""
    loss, (outputs, targets) = conf.make("loss", name), logits(7)
    expected = loss(outputs, targets)
    with PretendedDevice() as gpu:
        loss = loss.to(gpu.device) if isinstance(loss, nn.Module) else loss
        found = loss(outputs.to(gpu.device), targets.to(gpu.device))
        assert found.device == gpu.device
        assert gpu.waits == []
        torch.testing.assert_close(found.cpu(), expected)


@every_loss
def test_it_stays_finite_where_a_model_is_sure(name):
    loss, (outputs, targets) = conf.make("loss", name), logits(20, scale=1e4)
    outputs.requires_grad_()
    losses = loss(outputs, targets)
    losses.sum().backward()
    assert losses.isfinite().all()
    assert outputs.grad.isfinite().all()


@every_loss
def test_clients_minimise_it_as_plain_autograd_does(name):
    draw = torch.Generator().manual_seed(0)
    sizes = [3, 1, 4]
    data = Samples(torch.randn(8, 2, generator=draw), torch.randint(0, C, (8,), generator=draw), C)
    batch = ClientBatch(data, torch.arange(8).split(sizes), range(3))
    model = world.model()
    judged, loss = minimizing(model, conf.make("loss", name)), conf.make("loss", name)
    assert not hasattr(model, "sample_losses")
    expected = []
    for index in batch.indices:
        found = torch.autograd.grad(loss(model(data.inputs[index]), data.targets[index]).mean(), model.parameters())
        expected.append(torch.cat([part.flatten() for part in found]))
    for chunk in (1, 2, None):
        found = Gradient(client_chunk=chunk).gradients(judged, batch).updates
        torch.testing.assert_close(found, torch.stack(expected))
