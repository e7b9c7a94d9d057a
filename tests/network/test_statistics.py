"""Running statistics of batch normalisation in a federation."""

from copy import deepcopy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import SGD

import lightning_fl as fl
from lightning_fl import SettingError
from lightning_fl.contract.device import PretendedDevice
from lightning_fl.network.images import outputs
from lightning_fl.network.statistics import BatchNorm, of_statistics, with_statistics
from tests import training

C, RATE = 3, 0.2


def net(features=4):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(features, 5), nn.BatchNorm1d(5, momentum=0.3), nn.ReLU(inplace=True), nn.Linear(5, C)
    )


def pair(n, seed):
    draw = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % C
    return torch.randn(n, 4, generator=draw) + y[:, None], y


def data(**more):
    settings = {"partition": fl.partition.Iid(), "n_clients": 3, "server_samples": 4} | more
    return fl.TensorData(pair(48, 0), pair(300, 1), **settings)


def train(buffers, rounds=2, **more):
    more = {"data": data()} | more
    return fl.train(net(), rounds=rounds, lr=RATE, buffers=buffers, **more)


def test_a_model_that_was_trained_otherwise_is_refused():
    model = train("batch").model
    fl.train(model, data(), rounds=1, buffers="batch")
    for buffers in ("refuse", "rule"):
        with pytest.raises(SettingError, match=rf"trained with model\.buffers=batch .*, got {buffers}; give the same"):
            fl.train(model, data(), rounds=1, buffers=buffers)


def by_hand(steps, decay=0.0, momentum=0.0):
    """The mean of the clients' state dicts after local training, by plain torch, for two rounds."""
    held = data().reseeded(0, attacked=False)
    held.setup()
    model = net()
    for _ in range(2):
        states = []
        for index in held.clients.indices:
            own = deepcopy(model)
            optimizer = SGD(own.parameters(), RATE, momentum, weight_decay=decay)
            for _ in range(steps):
                optimizer.zero_grad()
                F.cross_entropy(own(held.train.inputs[index]), held.train.targets[index]).backward()
                optimizer.step()
            states.append(own.state_dict())
        model.load_state_dict({name: torch.stack([s[name].float() for s in states]).mean(0) for name in states[0]})
    return model.state_dict()


@pytest.mark.parametrize(
    ("client", "settings"),
    [
        (fl.client.Gradient(), {"steps": 1}),
        (fl.client.LocalSgd(2, momentum=0.5, weight_decay=0.1), {"steps": 2, "momentum": 0.5, "decay": 0.1}),
    ],
)
def test_as_coordinates_of_rows_they_are_what_averaging_state_dicts_makes_of_them(client, settings):
    found, expected = train("rule", client=client).model.state_dict(), by_hand(**settings)
    assert found.keys() == expected.keys() - {"1.num_batches_tracked"}
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-5)
    net().load_state_dict(found)  # a model of torch's own takes them


def test_the_parameters_do_not_depend_on_what_becomes_of_the_statistics():
    by_way = {way: train(way).model.state_dict() for way in ("batch", "recompute", "rule")}
    for name in net().state_dict():
        if not name.startswith("1.running") and not name.endswith("tracked"):
            assert torch.equal(by_way["batch"][name], by_way["recompute"][name])
            torch.testing.assert_close(by_way["batch"][name], by_way["rule"][name])
    assert not [name for name in by_way["batch"] if "running" in name]


def test_the_server_computes_them_anew_on_its_samples():
    run, held = train("recompute"), data().reseeded(0, attacked=False)
    held.setup()
    inner = run.model[0](held.server.samples.inputs)
    torch.testing.assert_close(run.model[1].running_mean, inner.mean(0))
    torch.testing.assert_close(run.model[1].running_var, inner.var(0))
    assert run.accuracy == pytest.approx(plain_accuracy(run.model.eval(), held.test.inputs, held.test.targets))


def test_a_checkpoint_has_the_statistics_of_its_parameters(tmp_path):
    """Also of a round that nobody has evaluated."""
    module, held = fl.FederatedModule(net(), optimizer=partial(SGD, lr=RATE), buffers="recompute"), data()
    trainer = training.trainer(rounds=3, default_root_dir=tmp_path, val_check_interval=2)
    training.fit(trainer, module, held)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)["state_dict"]
    inner = F.linear(held.server.samples.inputs, state["model.0.weight"], state["model.0.bias"])
    torch.testing.assert_close(state["model.1.running_mean"], inner.mean(0))


def plain_accuracy(model, x, y):
    return (model(x).argmax(1) == y).double().mean().item()


def test_without_any_evaluation_normalises_by_samples_from_all_over():
    x, y = pair(300, 1)
    run = train("batch")
    by_hand = [plain_accuracy(run.model, x[k::3], y[k::3]) for k in range(3)]
    assert run.accuracy == pytest.approx(sum(by_hand) / 3)
    samples = fl.Samples(x, y, C)
    assert plain_accuracy(lambda x: outputs(run.model, x, samples), x, y) == pytest.approx(run.accuracy)


def test_a_lie_about_a_variance_reaches_the_model_only_through_a_rule():
    attack = fl.adversary.SameValue(-1e4)  # the server subtracts it
    held = {"data": data(n_byzantine=1), "attack": attack}
    assert train("rule", rule=fl.aggregator.Average(), **held).model[1].running_var.min() > 100
    assert train("rule", rule=fl.aggregator.Median(), **held).model[1].running_var.max() < 100
    assert train("recompute", rule=fl.aggregator.Median(), **held).model[1].running_var.max() < 100


def test_one_value_per_channel_becomes_zero():
    layer = with_statistics(nn.BatchNorm1d(2), "batch")
    with torch.no_grad():
        layer.bias.copy_(torch.tensor([0.5, -1.0]))
    torch.testing.assert_close(layer(torch.tensor([[3.0, 4.0]])), layer.bias[None], rtol=0, atol=1e-4)
    assert train("batch", data=data(n_clients=48)).accuracy is not None  # one sample per client


def test_a_layer_of_two_names_is_replaced_once():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = self.second = nn.BatchNorm1d(4)
            self.last = nn.Linear(4, C)

        def forward(self, x):
            return self.last(self.second(self.first(x)))

    found = with_statistics(Twice(), "batch")
    assert isinstance(found.first, BatchNorm)
    assert found.first is found.second
    assert fl.train(Twice(), data(), rounds=2, buffers="batch").status == "completed"


def test_frozen_layers_keep_what_they_have():
    model = net()
    model[1].running_mean.fill_(0.5)
    model[1].eval()
    for buffers in ("refuse", "batch"):
        run = fl.train(model, data(), rounds=2, buffers=buffers, evaluate_every=1)
        assert type(run.model[1]) is nn.BatchNorm1d
        assert run.model[1].running_mean.tolist() == [0.5] * 5
        assert not run.model[1].num_batches_tracked
        further = fl.train(run.model, data(), rounds=2, buffers=buffers)
        assert type(further.model[1]) is nn.BatchNorm1d
        assert further.model[1].running_mean.tolist() == [0.5] * 5


@pytest.mark.parametrize(
    ("buffers", "settings", "message"),
    [
        (
            "refuse",
            {},
            "keeps batch statistics in 1 .BatchNorm1d.*model.buffers .in Python buffers=.: batch, recompute or rule",
        ),
        ("batch", {"client": fl.client.Gradient(client_chunk=2)}, "one client at a time, got client_chunk=2"),
        ("recompute", {"data": data(server_samples=0)}, "on the server's samples, got none; set data.server_samples"),
        ("rule", {"client": fl.client.FedProx()}, "got fed_prox; choose one of these"),
    ],
)
def test_refuses_what_cannot_work(buffers, settings, message):
    with pytest.raises(SettingError, match=message):
        train(buffers, **settings)


def test_refuses_a_layer_that_may_compute_anything():
    class Own(nn.BatchNorm1d):
        pass

    with pytest.raises(SettingError, match="is for torch's BatchNorm, got Own"):
        fl.train(nn.Sequential(nn.Linear(4, 3), Own(3)), data(), rounds=1, buffers="batch")


@pytest.mark.parametrize("buffers", ["batch", "recompute", "rule"])
def test_a_run_that_continues_equals_one_that_never_stopped(buffers, tmp_path):
    def go(rounds, path=None):
        module = fl.FederatedModule(net(), fl.client.LocalSgd(2), partial(SGD, lr=RATE), buffers=buffers)
        trainer = training.trainer(rounds=rounds, default_root_dir=tmp_path)
        training.fit(trainer, module, data(), path)
        return trainer, module

    trainer, _ = go(2)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    continued, whole = go(4, tmp_path / "half.ckpt")[1], go(4)[1]
    assert continued.evaluation == whole.evaluation
    for name, value in whole.model.state_dict().items():
        assert torch.equal(continued.model.state_dict()[name], value)
    assert isinstance(whole.model[1], BatchNorm)


def test_in_an_evaluation_gradients_are_torch_s():
    x = pair(48, 0)[0]
    for buffers in ("rule", "recompute"):
        model = train(buffers).model
        model(x).sum().backward()
        assert model[0].weight.grad.any()


def test_few_samples_are_evaluated_too():
    held = fl.TensorData(pair(48, 0), pair(20, 1), partition=fl.partition.Iid(), n_clients=3)
    assert fl.train(net(), held, rounds=1, lr=RATE, buffers="batch").accuracy is not None


def test_the_mask_of_statistics_is_where_the_model_is():
    with PretendedDevice() as gpu:
        model = with_statistics(net(), "rule").to(gpu.device)
        assert of_statistics(model).device == next(model.parameters()).device
