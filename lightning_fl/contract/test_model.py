"""Laws of every model in conf/model: it composes, is as large as its paper says, and trains on many clients at once."""

from functools import cache, partial

import pytest
import torch
from torch.func import functional_call, vmap
from torch.optim import SGD

from lightning_fl import ClientBatch, FederatedModule, Round, Samples
from lightning_fl.client.base import minibatches
from lightning_fl.client.gradient import Gradient
from lightning_fl.contract import conf
from lightning_fl.contract.device import PretendedDevice
from lightning_fl.contract.inputs import found_inputs
from lightning_fl.contract.world import slow_gradients
from lightning_fl.network.parameters import flatten, trainable, unflatten

MODELS = conf.names("model")
MANY = 20_000_000  # parameters, of which so many gradients per client would be too many here


@cache
def large(name):
    with torch.device("meta"):
        return sum(p.numel() for p in conf.make("model", name).parameters()) > MANY


SMALL = [name for name in MODELS if not large(name)]
every_model = pytest.mark.parametrize(
    "name", [name if name in SMALL else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)


def make(name):
    """The model as conf has it, from a seed; of a large one the first and last parameters are trained."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = conf.make("model", name)
    if large(name):
        for parameter in list(model.parameters())[2:-2]:
            parameter.requires_grad_(False)
    return model


def clients(name, model, sizes=(3, 1, 2), seed=0):
    """Clients of these sizes, holding inputs that the model takes."""
    draw, n = torch.Generator().manual_seed(seed), sum(sizes)
    inputs, n_classes = found_inputs(model, conf.compose(f"model={name}").model, n, draw)
    targets = torch.randint(0, n_classes, (n,), generator=draw)
    batch = ClientBatch(Samples(inputs, targets, n_classes), torch.arange(n).split(list(sizes)), range(3))
    return minibatches(batch, None, Round(0, 0.1, seed))[0]  # which says what dropout draws by


def assert_same(rows, expected):
    assert rows.shape == expected.shape
    assert rows.isfinite().all()
    assert ((rows - expected).norm(dim=1) <= 1e-5 * expected.norm(dim=1)).all()


@pytest.mark.parametrize("name", MODELS)
def test_a_federation_takes_it(name):
    with torch.device("meta"):
        buffers = conf.compose(f"model={name}").model.buffers or "refuse"
        module = FederatedModule(conf.make("model", name), Gradient(), partial(SGD, lr=0.1), buffers=buffers)
    count = sum(p.numel() for p in module.parameters())
    assert count > 0


@every_model
def test_clients_train_it_at_once_or_one_by_one(name):
    model = make(name)
    batch = clients(name, model)
    with torch.no_grad():
        logits = model.eval()(batch.samples.inputs)
    model.train()
    assert logits.shape == (6, batch.samples.n_classes)
    kept = flatten(trainable(model).values()).clone()
    rows, losses = slow_gradients(model, batch)
    for chunk in (1, 2, None):
        result = Gradient(client_chunk=chunk).gradients(model, batch)
        assert_same(result.updates, rows)
        torch.testing.assert_close(result.losses, losses, rtol=1e-5, atol=1e-6)
    assert torch.equal(flatten(trainable(model).values()), kept)


@every_model
def test_clients_train_it_from_parameters_of_their_own(name):
    model = make(name)
    batch = clients(name, model)
    start = flatten(trainable(model).values())
    at = start + 0.01 * torch.randn(3, len(start), generator=torch.Generator().manual_seed(1))
    one_by_one, *others = (Gradient(client_chunk=chunk).gradients(model, batch, at=at) for chunk in (1, 2, None))
    for at_once in others:
        assert_same(at_once.updates, one_by_one.updates)
    assert ((one_by_one.updates[0] - Gradient(client_chunk=1).gradients(model, batch).updates[0]).abs() > 0).any()


@every_model
def test_candidates_are_evaluated_at_once(name):
    """As the server's oracle does: many parameters, the same samples."""
    model = make(name).eval()
    inputs = clients(name, model).samples.inputs
    like = trainable(model)
    start = flatten(like.values())
    candidates = start + 0.01 * torch.randn(3, len(start), generator=torch.Generator().manual_seed(1))

    def logits(vector):
        return functional_call(model, dict(zip(like, unflatten(vector, list(like.values())), strict=True)), (inputs,))

    with torch.no_grad():
        expected = torch.stack([logits(vector) for vector in candidates])
        torch.testing.assert_close(vmap(logits)(candidates), expected, rtol=1e-4, atol=1e-5)


@every_model
def test_it_computes_on_a_gpu_what_it_computes_on_the_cpu(name):
    """One that is pretended, with its laws; nobody waits for it."""
    model = make(name).eval()
    inputs = clients(name, model).samples.inputs[:2]
    with torch.no_grad():
        expected = model(inputs)
        with PretendedDevice() as gpu:
            found = model.to(gpu.device)(inputs.to(gpu.device))
            assert found.device == gpu.device
            assert gpu.waits == []
            torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", SMALL)
def test_a_seed_gives_the_same_model(name):
    first, second = (flatten(make(name).state_dict().values()) for _ in range(2))
    assert torch.equal(first, second)
    assert first.isfinite().all()
