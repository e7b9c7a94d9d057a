import pytest
import torch
import torch.nn.functional as F

from lightning_fl import ClientBatch, SettingError, Updates
from lightning_fl.aggregator.server_only import ServerOnly
from lightning_fl.client.gradient import Gradient
from lightning_fl.contract import world
from lightning_fl.model_oracle import ModelOracle
from lightning_fl.round import Round


def server(classes, data=None):
    data = data or world.samples()
    return ModelOracle(world.model(), Gradient(), ClientBatch(data, classes, range(len(classes))), Round(0, 0.1, 0))


def gradient(index):
    """The gradient of the mean loss over some samples, by one ordinary backward pass."""
    data, model = world.samples(), world.model()
    F.cross_entropy(model(data.inputs[index]), data.targets[index]).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize("fill", [0.0, 1.0, -1e30, torch.nan, torch.inf])
def test_the_update_is_the_servers_own_whatever_clients_send(fill):
    rows = torch.full((5, world.D), fill)
    aggregation = ServerOnly().aggregate(Updates(rows), world.oracle())
    torch.testing.assert_close(aggregation.update, gradient(torch.arange(18)))
    assert aggregation.weights.tolist() == [0.0] * 5
    assert not aggregation.diagnostics


def test_all_samples_count_alike_not_all_classes():
    """Six samples of class 0 and two of class 1: the mean of the classes' own gradients would be another vector."""
    classes = [torch.arange(6), torch.tensor([6, 7])]
    update = ServerOnly().aggregate(world.updates(), server(classes)).update
    torch.testing.assert_close(update, gradient(torch.arange(8)))
    assert not torch.allclose(update, (gradient(classes[0]) + gradient(classes[1])) / 2, rtol=1e-2)


def test_server_data_are_needed():
    with pytest.raises(SettingError, match=r"needs server data, got none; set data.server_samples to at least 1"):
        ServerOnly().aggregate(world.updates(), server([]))
