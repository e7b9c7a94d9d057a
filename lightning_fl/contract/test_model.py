"""Laws of every model in conf/model: it composes, is as large as its paper says, and trains on many clients at once."""

from functools import partial

import pytest
import torch
from torch.func import functional_call, vmap
from torch.optim import SGD

from lightning_fl import ClientBatch, FederatedModule, Round, Samples
from lightning_fl.client.base import minibatches
from lightning_fl.client.gradient import Gradient
from lightning_fl.contract import conf
from lightning_fl.contract.world import slow_gradients
from lightning_fl.network.parameters import flatten, trainable, unflatten
from lightning_fl.run.config import own_folder

MODELS = conf.names("model")
every_model = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "vgg16" else name for name in MODELS]
)


def make(name):
    """The model as conf has it, from a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = conf.make("model", name)
    if name == "vgg16":  # 135 million gradients per client are too many here; those of the first and last layer will do
        for layer in [*model.features[1:], *model.classifier[:-1]]:
            layer.requires_grad_(False)
    return model


def clients(name, sizes=(3, 1, 4, 2, 2), seed=0):
    """Clients of these sizes, holding inputs of the shape that conf says."""
    settings, draw, n = conf.compose(f"model={name}").model, torch.Generator().manual_seed(seed), sum(sizes)
    if "vocabulary" in settings:
        inputs = torch.randint(1, settings.vocabulary, (n, 70), generator=draw)
        lengths = torch.randint(1, 71, (n, 1), generator=draw)
        inputs[torch.arange(70) >= lengths] = 0
    elif "in_features" in settings:
        inputs = torch.randn(n, settings.in_features, generator=draw)
    elif name == "quadratic":
        inputs = torch.randn(n, settings.n_classes, generator=draw)
    elif "n_classes" in settings and ({"in_channels", "side"} & set(settings) or own_folder() is None):
        side = settings.get("side", 32)
        inputs = torch.randn(n, settings.get("in_channels", 3), side, side, generator=draw)
    else:
        pytest.skip("the settings name neither in_features nor in_channels and side: no telling what it takes")
    targets = torch.randint(0, settings.n_classes, (n,), generator=draw)
    batch = ClientBatch(Samples(inputs, targets, settings.n_classes), torch.arange(n).split(list(sizes)), range(5))
    return minibatches(batch, None, Round(0, 0.1, seed))[0]  # which says what dropout draws by


def assert_same(rows, expected):
    assert rows.shape == expected.shape
    assert rows.isfinite().all()
    assert ((rows - expected).norm(dim=1) <= 1e-5 * expected.norm(dim=1)).all()


@pytest.mark.parametrize("name", MODELS)
def test_a_federation_takes_it(name):
    with torch.device("meta"):
        module = FederatedModule(conf.make("model", name), Gradient(), partial(SGD, lr=0.1))
    count = sum(p.numel() for p in module.parameters())
    assert count > 0


@every_model
def test_clients_train_it_at_once_or_one_by_one(name):
    model, batch = make(name), clients(name)
    with torch.no_grad():
        logits = model.eval()(batch.samples.inputs)
    model.train()
    assert logits.shape == (12, batch.samples.n_classes)
    kept = flatten(trainable(model).values()).clone()
    rows, losses = slow_gradients(model, batch)
    for chunk in (1, 3, None):
        result = Gradient(client_chunk=chunk).gradients(model, batch)
        assert_same(result.updates, rows)
        torch.testing.assert_close(result.losses, losses, rtol=1e-5, atol=1e-6)
    assert torch.equal(flatten(trainable(model).values()), kept)


@every_model
def test_clients_train_it_from_parameters_of_their_own(name):
    model, batch = make(name), clients(name)
    start = flatten(trainable(model).values())
    at = start + 0.01 * torch.randn(5, len(start), generator=torch.Generator().manual_seed(1))
    one_by_one, *others = (Gradient(client_chunk=chunk).gradients(model, batch, at=at) for chunk in (1, 3, None))
    for at_once in others:
        assert_same(at_once.updates, one_by_one.updates)
    assert ((one_by_one.updates[0] - Gradient(client_chunk=1).gradients(model, batch).updates[0]).abs() > 0).any()


@every_model
def test_candidates_are_evaluated_at_once(name):
    """As the server's oracle does: many parameters, the same samples."""
    model, inputs = make(name).eval(), clients(name).samples.inputs
    like = trainable(model)
    start = flatten(like.values())
    candidates = start + 0.01 * torch.randn(3, len(start), generator=torch.Generator().manual_seed(1))

    def logits(vector):
        return functional_call(model, dict(zip(like, unflatten(vector, list(like.values())), strict=True)), (inputs,))

    with torch.no_grad():
        expected = torch.stack([logits(vector) for vector in candidates])
        torch.testing.assert_close(vmap(logits)(candidates), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "vgg16"])
def test_a_seed_gives_the_same_model(name):
    first, second = (flatten(make(name).state_dict().values()) for _ in range(2))
    assert torch.equal(first, second)
    assert first.isfinite().all()
