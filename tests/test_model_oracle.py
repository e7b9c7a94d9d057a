import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lightning_fl import SettingError
from lightning_fl.client.gradient import Gradient
from lightning_fl.contract import world
from lightning_fl.model_oracle import ModelOracle
from lightning_fl.round import Round
from lightning_fl.samples import ClientBatch, Samples


def convolutional() -> ModelOracle:
    """A convolution: one candidate at a time on a CPU, where the linear model takes ten."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (9, 1, 4, 4), generator=draw, dtype=torch.uint8)
    data = Samples(images, torch.arange(9) % 3, 3, mean=(0.5,), std=(0.25,))
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=draw))
    return ModelOracle(model, Gradient(), world.class_clients(data), Round(0, 0.1, 0))


@pytest.fixture(params=[world.oracle, convolutional])
def server(request) -> ModelOracle:
    return request.param()


def samples(server: ModelOracle, classes) -> tuple[torch.Tensor, torch.Tensor]:
    """All samples of some classes, scaled by hand."""
    data = server.classes.samples
    chosen = [i for i in range(len(data)) if data.targets[i] in classes]
    x = data.inputs[chosen]
    if x.dtype == torch.uint8:
        x = (x.float() / 255 - 0.5) / 0.25
    return x, data.targets[chosen]


def at(server: ModelOracle, update: torch.Tensor, rate: float) -> nn.Module:
    """A copy of the model, moved by -rate * update."""
    model = copy.deepcopy(server.model)
    with torch.no_grad():
        nn.utils.vector_to_parameters(
            nn.utils.parameters_to_vector(model.parameters()) - rate * update, model.parameters()
        )
    return model


def plain_gradient(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    F.cross_entropy(model(x), y).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def candidates(server: ModelOracle, k: int) -> torch.Tensor:
    return torch.randn(k, len(server.parameters), generator=torch.Generator().manual_seed(1))


def test_class_updates_and_update_are_plain_gradients(server):
    zero = torch.zeros_like(server.parameters)
    expected = torch.stack([plain_gradient(at(server, zero, 0), *samples(server, [z])) for z in range(3)])
    torch.testing.assert_close(server.class_updates, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(server.update, plain_gradient(at(server, zero, 0), *samples(server, [0, 1, 2])))
    assert server.class_updates is server.class_updates


def test_update_weighs_samples_not_classes():
    """With 6, 2 and 1 samples the whole is not the mean of the classes."""
    data = world.samples()
    indices = [torch.arange(6), torch.arange(6, 8), torch.tensor([12])]
    server = ModelOracle(world.model(), Gradient(), ClientBatch(data, indices, range(3)), Round(0, 0.1, 0))
    chosen = torch.cat(indices)
    expected = plain_gradient(world.model(), data.inputs[chosen], data.targets[chosen])
    torch.testing.assert_close(server.update, expected)
    assert not torch.allclose(server.update, server.class_updates.mean(0), atol=1e-3)


def test_the_virtual_client_with_all_samples_has_a_number_of_its_own():
    """So that its mini-batches are drawn by themselves."""

    class Spy(Gradient):
        def updates(self, model, batch, this_round, out=None):
            asked.append(tuple(batch.ids))
            return super().updates(model, batch, this_round, out)

    asked, classes = [], world.class_clients(world.samples())
    server = ModelOracle(
        world.model(), Spy(), ClientBatch(classes.samples, classes.indices, (-1, -2, -3)), Round(0, 0.1, 0)
    )
    assert (len(server.class_updates), len(server.update)) == (3, world.D)
    assert asked == [(-1, -2, -3), (-4,)]


def test_parameters_are_flat_and_in_the_models_order(server):
    assert torch.equal(server.parameters, nn.utils.parameters_to_vector(server.model.parameters()))


@pytest.mark.parametrize("k", [1, 10, 23])
def test_losses_after_agree_with_a_loop(server, k):
    x, y = samples(server, [0, 1, 2])
    with torch.no_grad():
        expected = torch.stack([F.cross_entropy(at(server, row, 0.1)(x), y) for row in candidates(server, k)])
    torch.testing.assert_close(server.losses_after(candidates(server, k)), expected)


def test_losses_step_down_at_the_servers_rate():
    """A step along the server's own gradient helps; up it hurts, and a hundredth of the rate does nearly nothing."""
    server, still = world.oracle(0.5), world.oracle(0.005)
    before, down, up = server.losses_after(torch.stack([0 * server.update, server.update, -server.update])).tolist()
    assert down < before < up
    assert abs(still.losses_after(server.update[None]).item() - before) < 0.02 * (before - down)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_loss_that_is_no_number_is_inf_and_disturbs_nobody(server, value):
    rows = candidates(server, 12)
    expected = server.losses_after(rows)
    rows[5] = value
    losses = server.losses_after(rows)
    assert losses[5] == torch.inf
    keep = torch.arange(12) != 5
    torch.testing.assert_close(losses[keep], expected[keep])


def test_length_alone_is_no_loss():
    """1e30 for one class is terrible; for every class it adds the same to all logits: they tie, the loss is log 3."""
    rows = torch.zeros(2, world.D)
    rows[0, 0], rows[1] = 1e30, 1e30
    alone, alike = world.oracle().losses_after(rows).tolist()
    assert alone > 1e28
    assert alike == pytest.approx(math.log(3))


@pytest.mark.parametrize("rate", [0.0, 0.1, 3.0])
def test_gradient_after_agrees_with_a_loop(server, rate):
    update = candidates(server, 1)[0]
    expected = plain_gradient(at(server, update, rate), *samples(server, [0, 1, 2]))
    gradient = server.gradient_after(update, rate)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)
    assert not gradient.requires_grad


def test_asking_changes_neither_model_nor_arguments(server):
    rows, model = candidates(server, 3), copy.deepcopy(server.model.state_dict())
    before = rows.clone()
    with torch.no_grad():  # as in Lightning's evaluation
        server.class_updates, server.update, server.losses_after(rows), server.gradient_after(rows[0], 0.1)
    assert torch.equal(rows, before)
    assert all(torch.equal(value, model[name]) for name, value in server.model.state_dict().items())
    assert all(parameter.grad is None for parameter in server.model.parameters())


def test_generator_depends_on_seed_round_and_purpose_only():
    def draw(seed=0, round_=0, purpose="rule"):
        server = ModelOracle(world.model(), Gradient(), world.class_clients(world.samples()), Round(round_, 0.1, seed))
        return [tuple(torch.rand(3, generator=server.generator(purpose)).tolist()) for _ in range(2)]

    first, again = draw()
    assert first == again
    assert len({first, draw(seed=1)[0], draw(round_=1)[0], draw(purpose="other")[0]}) == 4


def test_without_data_it_says_so():
    empty = ClientBatch(world.samples(), [], [])
    server = ModelOracle(world.model(), Gradient(), empty, Round(0, 0.1, 0))
    rows = torch.zeros(2, world.D)
    for ask in (
        lambda: server.class_updates,
        lambda: server.update,
        lambda: server.losses_after(rows),
        lambda: server.gradient_after(rows[0], 0.1),
    ):
        with pytest.raises(SettingError, match=r"needs server data, got none; set data\.server_samples"):
            ask()
    assert server.parameters.shape == (world.D,)
