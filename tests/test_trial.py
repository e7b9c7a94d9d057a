"""Whatever model is accepted, a round gives each client what plain autograd gives on it alone."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from lightning_fl import ClientBatch, Samples, SettingError, trial
from lightning_fl.checks import check_model
from lightning_fl.client.gradient import Gradient
from lightning_fl.contract.world import slow_gradients

pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")  # of attention in vmap
SIZES = (3, 1, 7, 2, 2, 5, 1, 4)


class Of(nn.Module):
    """Layers, and what a forward pass makes of them and of (n, 5, 8) inputs, of the same shape."""

    def __init__(self, forward, *layers):
        super().__init__()
        self.run, self.parts = forward, layers
        self.layers = nn.ModuleList(layer for layer in layers if isinstance(layer, nn.Module))

    def forward(self, x):
        return self.run(x, *self.parts)


class Counting(nn.Module):
    """Anneals by a plain attribute, slowly."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return x * (1 + 0.001 * self.calls)


class Elsewhere(nn.Linear):
    """Keeps its weight in a list, too, and computes with that."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.kept = [self.weight]

    def forward(self, x):
        return F.linear(x, self.kept[0], self.bias)


class Centred(torch.autograd.Function):
    """Centres gradients over the batch."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g - g.mean(0)


def attention(**more):
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, **more)


GOOD = {
    "linear": lambda: nn.Linear(8, 8),
    "relu": nn.ReLU,
    "layer norm": lambda: nn.LayerNorm(8),
    "convolution": lambda: nn.Conv1d(5, 5, 3, padding=1),
    "attention": lambda: attention(batch_first=True),
    "attention, time first": lambda: Of(lambda x, a: a(x.transpose(0, 1)).transpose(0, 1), attention()),
    "a product of its own": lambda: Of(lambda x, a: x @ a.weight.tanh(), nn.Linear(8, 8, bias=False)),
    "a mean over positions": lambda: Of(lambda x: x - x.mean(1, keepdim=True)),
    "a step": lambda: Of(lambda x: x + x.detach().round()),
}
BAD = {
    "attention over the batch": (attention, r"mixes the samples of a batch in 1\.self_attn \(MultiheadAttention\)"),
    "softmax over the batch": (lambda: nn.Softmax(0), r"mixes the samples of a batch in 1 \(Softmax\)"),
    "centred": (lambda: Of(lambda x: x - x.mean(0)), r"mixes the samples of a batch in 1 \(Of\)"),
    "batch statistics": (
        lambda: Of(lambda x: F.batch_norm(x, None, None, training=True)),
        r"mixes the samples of a batch in 1 \(Of\)",
    ),
    "how many": (lambda: Of(lambda x: x / len(x)), r"mixes the samples of a batch in 1 \(Of\)"),
    "centred backwards": (lambda: Of(Centred.apply), r"in its backward pass, in the gradient of 0.weight"),
    "counting": (Counting, r"gives other outputs when it is called again, by what 1 \(Counting\) remembers"),
    "python's": (lambda: Of(lambda x: x * random.random()), r"random numbers outside nn.Dropout, in 1 \(Of\)"),
    "numpy's": (
        lambda: Of(lambda x, a: a(x) if np.random.rand() < 0.5 else x, nn.Linear(8, 8)),
        r"random numbers outside nn.Dropout, in 1 \(Of\)",
    ),
    "a stream of its own": (
        lambda: Of(lambda x, draw: x * draw(), random.Random(0).random),
        r"gives other outputs when it is called again, by what 1 \(Of\) remembers",
    ),
    "dropout that is recomputed": (
        lambda: Of(lambda x, a: checkpoint(a, x, use_reentrant=False), nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 8))),
        "cannot be trained: torch.utils.checkpoint: .* when it is computed again|in its backward pass",
    ),
    "a weight in a list": (lambda: Elsewhere(8, 8), r"another gradient of 1.weight than plain autograd"),
}


def seeded(*makes):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Linear(8, 8), *(make() for make in makes), nn.Flatten(), nn.Linear(40, 3)]
        return nn.Sequential(*layers).double()


def clients(shape=(5, 8), tokens=None):
    draw, n = torch.Generator().manual_seed(0), sum(SIZES)
    x = torch.randn(n, *shape, generator=draw, dtype=torch.float64)
    x = x if tokens is None else torch.randint(0, tokens, (n, *shape), generator=draw)
    return ClientBatch(Samples(x, torch.arange(n) % 3, 3), torch.arange(n).split(list(SIZES)), range(8))


def assert_a_round_is_plain_autograd(model, batch, *chunks):
    rows, losses = slow_gradients(model, batch)
    for chunk in chunks:
        found = Gradient(client_chunk=chunk).gradients(model, batch)
        torch.testing.assert_close(found.updates, rows, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(found.losses, losses, rtol=1e-9, atol=1e-11)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(sorted(GOOD)), max_size=3), st.sampled_from([1, 3, None]))
def test_a_model_that_treats_each_sample_by_itself_is_accepted_and_right(names, chunk):
    model, batch = seeded(*(GOOD[name] for name in names)), clients()
    check_model(model, Gradient(client_chunk=chunk), batch.samples)
    assert_a_round_is_plain_autograd(model, batch, chunk)


@pytest.mark.parametrize("chunk", [1, 3, None])
@pytest.mark.parametrize("name", BAD)
def test_others_are_refused_with_the_layers_name(name, chunk):
    make, message = BAD[name]
    model = seeded(make)
    before = {where: value.clone() for where, value in model.state_dict().items()}
    with pytest.raises(SettingError, match=message):
        check_model(model, Gradient(client_chunk=chunk), clients().samples)
    assert all(torch.equal(value, before[where]) for where, value in model.state_dict().items())


@settings(max_examples=8, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(sorted(GOOD)), max_size=2), st.sampled_from(sorted(BAD)), st.integers(0, 2))
def test_a_bad_layer_is_found_among_others(names, bad, place):
    makes = [GOOD[name] for name in names]
    makes.insert(place, BAD[bad][0])
    with pytest.raises(SettingError):
        check_model(seeded(*makes), Gradient(), clients().samples)


def test_words_counted_over_the_batch():
    words, batch = nn.Embedding(9, 8, scale_grad_by_freq=True), clients((5,), tokens=9)
    model = nn.Sequential(words, nn.Flatten(), nn.Linear(40, 3)).double()
    assert_a_round_is_plain_autograd(model, batch, 1, 3, None)
    with pytest.raises(SettingError, match=r"in the gradient of 0.weight.*scale_grad_by_freq=False"):
        check_model(model, Gradient(), batch.samples)


def test_a_loss_that_depends_on_other_samples():
    class Weighted(nn.Linear):
        def sample_losses(self, outputs, targets):
            losses = F.cross_entropy(outputs, targets, reduction="none")
            return losses * losses.detach() / losses.detach().sum()

    with pytest.raises(SettingError, match="Weighted mixes the samples of a batch in its loss"):
        check_model(Weighted(8, 3).double(), Gradient(), clients((8,)).samples)


def test_a_loss_that_draws():
    class Noisy(nn.Linear):
        def sample_losses(self, outputs, targets):
            return F.cross_entropy(outputs, targets, reduction="none") * torch.rand(len(targets))

    with pytest.raises(SettingError, match="Noisy draws random numbers in its loss"):
        check_model(Noisy(8, 3).double(), Gradient(), clients((8,)).samples)


def test_rounding_is_no_fault(monkeypatch):
    """A float32 kink is looked at again in float64: here every first look finds a fault."""
    monkeypatch.setattr("lightning_fl.trial._TOLERANCES", (-1.0, 1e-6))
    model, samples = seeded(GOOD["relu"]).float(), clients().samples
    before = [value.clone() for value in model.parameters()]
    check_model(model, Gradient(), Samples(samples.inputs.float(), samples.targets, 3))
    assert all(torch.equal(value, then) for value, then in zip(model.parameters(), before, strict=True))
    assert all(value.dtype == torch.float32 and value.grad is None for value in model.parameters())


def test_a_model_is_tried_once(monkeypatch):
    """A command and Lightning both ask; what has changed since is tried again."""
    model, samples, tried = seeded(GOOD["relu"]), clients().samples, []
    fault = trial._Trial.fault
    monkeypatch.setattr(trial._Trial, "fault", lambda self: tried.append(self.model) or fault(self))
    for _ in range(2):
        check_model(model, Gradient(), samples)
    assert len(tried) == 1
    check_model(model, Gradient(client_chunk=3), samples)
    assert len(tried) == 2
    model.append(BAD["how many"][0]())
    with pytest.raises(SettingError, match="mixes the samples"):
        check_model(model, Gradient(), samples)
