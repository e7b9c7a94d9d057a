"""Local SGD against one client after the other, step by step."""

import pytest
import torch

from lightning_fl import ClientBatch, Round, SettingError
from lightning_fl.client.gradient import Gradient
from lightning_fl.client.local_sgd import LocalSgd
from lightning_fl.contract import world
from lightning_fl.network.parameters import flatten, trainable

ROUND = Round(2, 0.3, 0)


def clients():
    data = world.samples(8)
    draw = torch.Generator().manual_seed(1)
    return ClientBatch(data, list(torch.randperm(24, generator=draw).split([5, 8, 1, 10])), range(4))


def model():
    return world.model().double()


def double(batch):
    data = batch.samples
    object.__setattr__(data, "inputs", data.inputs.double())
    return batch


def slow_models(indices, samples, steps, rate, mu=0.0):
    """The local models w_1 ... w_K of one client on all its samples, and its gradients, by plain autograd."""
    local, start = model(), [parameter.detach().clone() for parameter in model().parameters()]
    x, y = samples.gather(indices)
    models, gradients = [], []
    for _ in range(steps):
        loss = -torch.log_softmax(local(x), 1)[torch.arange(len(y)), y].mean()
        for parameter, origin in zip(local.parameters(), start, strict=True):
            loss = loss + mu / 2 * (parameter - origin).square().sum()
        step = torch.autograd.grad(loss, list(local.parameters()))
        gradients.append(torch.cat([g.flatten() for g in step]))
        with torch.no_grad():
            for parameter, g in zip(local.parameters(), step, strict=True):
                parameter -= rate * g
        models.append(torch.cat([parameter.detach().flatten() for parameter in local.parameters()]))
    return models, gradients


@pytest.mark.parametrize("chunk", [1, 2, 7])
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("upload", ["difference", "mean_gradient", "tail_average"])
def test_agrees_with_a_loop(chunk, steps, upload):
    batch = double(clients())
    result = LocalSgd(steps, upload, client_chunk=chunk).updates(model(), batch, ROUND)
    start = flatten(trainable(model()).values())
    for row, indices in zip(result.updates, batch.indices, strict=True):
        models, gradients = slow_models(indices, batch.samples, steps, rate=0.3)
        expected = {
            "difference": (start - models[-1]) / 0.3,
            "mean_gradient": torch.stack(gradients).mean(0),
            "tail_average": (start - torch.stack(models[steps // 2 :]).mean(0)) / 0.3,
        }[upload]
        torch.testing.assert_close(row, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("own", [None, 0.2])
@pytest.mark.parametrize("upload", ["difference", "mean_gradient", "tail_average"])
def test_its_model_lies_at_the_upload_rate_from_the_global_one(upload, own):
    batch, client = double(clients()), LocalSgd(4, upload, learning_rate=own)
    uploads = client.updates(model(), batch, ROUND).updates
    there = flatten(trainable(model()).values()) - client.upload_rate(ROUND) * uploads
    for row, indices in zip(there, batch.indices, strict=True):
        models, _ = slow_models(indices, batch.samples, 4, rate=own or 0.3)
        expected = torch.stack(models[2:]).mean(0) if upload == "tail_average" else models[-1]
        torch.testing.assert_close(row, expected, rtol=1e-10, atol=1e-12)


def test_a_server_step_at_the_local_rate_averages_the_models():
    """FedAvg as McMahan et al. write it: w <- mean of the local models."""
    batch = double(clients())
    uploads = LocalSgd(3, "difference").updates(model(), batch, ROUND).updates
    averaged = torch.stack([slow_models(i, batch.samples, 3, 0.3)[0][-1] for i in batch.indices]).mean(0)
    torch.testing.assert_close(flatten(trainable(model()).values()) - 0.3 * uploads.mean(0), averaged)


@pytest.mark.parametrize("upload", ["difference", "mean_gradient", "tail_average"])
@pytest.mark.parametrize("size", [None, 3])
def test_one_step_is_fedsgd_bit_for_bit(upload, size):
    ours = LocalSgd(1, upload, batch_size=size).updates(world.model(), clients(), ROUND)
    theirs = Gradient(batch_size=size).updates(world.model(), clients(), ROUND)
    assert torch.equal(ours.updates, theirs.updates)
    assert torch.equal(ours.losses, theirs.losses)


@pytest.mark.parametrize("upload", ["difference", "mean_gradient", "tail_average"])
def test_losses_are_those_of_the_first_step(upload):
    batch = double(clients())
    losses = LocalSgd(4, upload).updates(model(), batch, ROUND).losses
    for loss, indices in zip(losses, batch.indices, strict=True):
        x, y = batch.samples.gather(indices)
        torch.testing.assert_close(loss, -torch.log_softmax(model()(x), 1)[torch.arange(len(y)), y].mean())


@pytest.mark.parametrize(("size", "a_step"), [(None, 5 + 8 + 1 + 10), (3, 3 + 3 + 1 + 3)])
def test_counts_the_gradients_it_took(size, a_step):
    result = LocalSgd(4, "difference", batch_size=size).updates(world.model(), clients(), ROUND)
    assert result.sample_gradients == 4 * a_step


def test_its_own_rate_replaces_the_server_s():
    own = LocalSgd(3, "mean_gradient", learning_rate=0.3).updates(world.model(), clients(), Round(2, 9.0, 0))
    assert torch.equal(own.updates, LocalSgd(3, "mean_gradient").updates(world.model(), clients(), ROUND).updates)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0, "upload": "difference"}, r"local_sgd needs steps >= 1, got 0"),
        ({"steps": 2, "upload": "model"}, r"difference, mean_gradient, tail_average, got 'model'"),
        ({"steps": 2.5, "upload": "difference"}, r"local_sgd needs a whole number as steps, got 2.5; round it"),
        (
            {"steps": 2, "upload": "difference", "batch_size": 0},
            r"local_sgd needs batch_size >= 1, got 0",
        ),
        ({"steps": 2, "upload": "difference", "learning_rate": 0.0}, r"local_sgd needs learning_rate > 0, got 0.0"),
    ],
)
def test_refuses_settings_out_of_range(settings, message):
    with pytest.raises(SettingError, match=message):
        LocalSgd(**settings)


def test_a_round_changes_nothing_of_the_next():
    """Round after round, of more or fewer clients, and of models of another type."""
    batch, used, earlier = clients(), LocalSgd(3), []
    few = ClientBatch(batch.samples, batch.indices[:2], batch.ids[:2])
    for some, net in [
        (batch, world.model()),
        (few, world.model()),
        (batch, world.model()),
        (double(clients()), model()),
    ]:
        found = used.updates(net, some, ROUND).updates
        assert torch.equal(found, LocalSgd(3).updates(net, some, ROUND).updates)
        earlier.append((found, found.clone()))
    assert all(torch.equal(found, copy) for found, copy in earlier)
    assert not used.state_dict()
