"""All clients in one batch agree with one client after the other, for every model that is computed so."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lightning_fl import ClientBatch, Round, Samples
from lightning_fl.client import base
from lightning_fl.client.base import clients_that_fit
from lightning_fl.client.gradient import Gradient
from lightning_fl.client.local_sgd import LocalSgd
from lightning_fl.client.side_by_side import UnsupportedError, fill, keeps_apart
from lightning_fl.contract import conf
from lightning_fl.contract.world import slow_gradients
from lightning_fl.model.mlp import Mlp
from lightning_fl.network.facts import numbers_per_sample
from lightning_fl.network.parameters import flatten, trainable
from tests.client.test_base import seeded

C = 3


def clients(shape, sizes=(3, 1, 4, 4, 2), tokens=None, dtype=torch.float64, seed=0):
    """Clients of these sizes, whose inputs have this shape."""
    draw, n = torch.Generator().manual_seed(seed), sum(sizes)
    if tokens is None:
        inputs = torch.randn(n, *shape, generator=draw, dtype=torch.float64).to(dtype)
    else:
        inputs = torch.randint(0, tokens, (n, *shape), generator=draw)
    data = Samples(inputs, torch.randint(0, C, (n,), generator=draw), C)
    return ClientBatch(data, list(torch.randperm(n, generator=draw).split(list(sizes))), range(len(sizes)))


class Of(nn.Module):
    """Modules by name and what a forward pass makes of them and its inputs."""

    def __init__(self, forward, **modules):
        super().__init__()
        self.run = forward
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x):
        return self.run(self, x)


class Residual(nn.Module):
    """A block whose sum is taken in place."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Linear(6, 6))

    def forward(self, x):
        y = self.inner(x)
        y += x
        return y


def conv(make, channels, **settings):
    return lambda: nn.Sequential(
        make(2, channels, 3, **settings), nn.ReLU(inplace=True), nn.Flatten(), nn.LazyLinear(C)
    )


def lazy(make, shape):
    """A model whose last layer finds its width from the inputs."""
    model = make()
    model(torch.zeros(2, *shape))
    return model


def tied():
    """An embedding that also is the last layer's weight, as in language models."""
    model = Of(lambda m, x: m.out(m.table(x).mean(1)), table=nn.Embedding(C, 6), out=nn.Linear(6, C))
    model.out.weight = model.table.weight
    return model


def mixed_shapes():
    def forward(m, x):
        x = m.first(x.view(x.size(0), -1)).view(-1, 3, 4)
        x = torch.cat([x, 1 - x.transpose(1, 2).reshape(x.shape), x[:, :1] * m.scale], dim=1)
        x = torch.where(x > 0, x, 0.1 * x.permute(0, 1, 2)).mean(dim=-1, keepdim=True).squeeze(-1)
        return m.last(F.softmax(x.unsqueeze(1).expand(-1, 2, -1).flatten(1), dim=1) + x.sum(1, keepdim=True) / 7)

    model = Of(forward, first=nn.Linear(8, 12), last=nn.Linear(14, C))
    model.register_buffer("scale", torch.linspace(0.5, 2, 4)[None, None])
    return model


APART = {
    "linear": (lambda: nn.Linear(8, C), (8,), None),
    "linear without bias": (lambda: nn.Sequential(nn.Linear(8, 5, bias=False), nn.Tanh(), nn.Linear(5, C)), (8,), None),
    "linear on every position": (
        lambda: nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Flatten(), nn.Linear(30, C)),
        (6, 4),
        None,
    ),
    "conv2d": (conv(nn.Conv2d, 4, stride=2, padding=1, bias=False), (2, 7, 6), None),
    "grouped conv2d": (conv(nn.Conv2d, 4, groups=2, dilation=2), (2, 7, 6), None),
    "conv2d by a function": (
        lambda: Of(
            lambda m, x: m.l(F.conv2d(x, m.c.weight, m.c.bias, padding=1).flatten(1)),
            c=nn.Conv2d(2, 2, 3),
            l=nn.Linear(24, C),
        ),
        (2, 3, 4),
        None,
    ),
    "pooled": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, C)
        ),
        (2, 8, 8),
        None,
    ),
    "residual": (lambda: nn.Sequential(nn.Linear(8, 6), Residual(), Residual(), nn.Linear(6, C)), (8,), None),
    "a weight used by a function": (
        lambda: Of(lambda m, x: F.linear(x, m.l.weight), l=nn.Linear(8, C, bias=False)),
        (8,),
        None,
    ),
    "a branch that leads nowhere": (lambda: Of(nowhere, l=nn.Linear(8, 8), out=nn.Linear(8, C)), (8,), None),
    "dropout": (lambda: nn.Sequential(nn.Linear(8, 20), nn.Dropout(0.5), nn.ReLU(), nn.Linear(20, C)), (8,), None),
}
# What is computed by ``vmap`` or in a loop.
OTHERS = {
    "conv1d": (conv(nn.Conv1d, 4), (2, 9), None),
    "conv2d padded by a word": (conv(nn.Conv2d, 4, padding="same"), (2, 6, 6), None),
    "conv3d": (conv(nn.Conv3d, 2), (2, 4, 4, 3), None),
    "embedding": (
        lambda: nn.Sequential(nn.Embedding(7, 5, padding_idx=-7), nn.Flatten(), nn.Linear(20, C)),
        (4,),
        7,
    ),
    "layer norm": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.SiLU(), nn.Flatten(), nn.Linear(30, C)),
        (5, 4),
        None,
    ),
    "group norm": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(24, C)),
        (2, 4, 5),
        None,
    ),
    "one layer twice": (
        lambda: Of(lambda m, x: m.last(m.inner(m.inner(x).relu())), inner=nn.Linear(8, 8), last=nn.Linear(8, C)),
        (8,),
        None,
    ),
    "tied": (tied, (4,), C),
    "many shapes": (mixed_shapes, (2, 4), None),
}


def nowhere(m, x):
    m.l(x)
    return m.out(x)


def make(name):
    model, shape, tokens = (APART | OTHERS)[name]
    model = seeded(partial(lazy, model, shape) if "conv" in name else model)
    return model.double(), shape, tokens


def spread(model, batch, scale=0.3, seed=1):
    """Weights of each client's own."""
    start = flatten(trainable(model).values())
    noise = torch.randn(len(batch), len(start), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return start + scale * noise.to(start.dtype)


@pytest.mark.parametrize("sizes", [(3, 1, 4, 4, 2), (2, 2, 2), (5,), (1, 1, 1, 1)], ids=str)
@pytest.mark.parametrize("name", [*APART, *OTHERS])
def test_agrees_with_a_loop_over_clients(name, sizes):
    model, shape, tokens = make(name)
    batch = clients(shape, sizes, tokens)
    (batch,) = base.minibatches(batch, None, Round(0, 0.1, 0))  # dropout asks which round it is
    assert keeps_apart(model, batch.samples) is (name in APART)
    for at in (None, spread(model, batch)):
        ours, loop = (Gradient(client_chunk=chunk).gradients(model, batch, at=at) for chunk in (None, 1))
        torch.testing.assert_close(ours.updates, loop.updates, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(ours.losses, loop.losses, rtol=1e-10, atol=1e-12)
        assert ours.sample_gradients == sum(sizes)
    assert all(p.grad is None for p in model.parameters())
    if name not in ("dropout", "a branch that leads nowhere"):
        rows, losses = slow_gradients(model, batch)
        ours = Gradient().gradients(model, batch)
        torch.testing.assert_close(ours.updates, rows, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(ours.losses, losses, rtol=1e-10, atol=1e-12)


class Hyper(nn.Module):
    """Weights that come from the samples."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x):
        return F.linear(x, self.inner(x)[:C])


def counted(m, x):
    return m.l(x) / len(x)


def looks(m, x):
    return m.l(x) if (x > 1e3).any() else m.l(2 * x)


def stepwise(m, x):
    """Batch in the second dimension, as torch's recurrent layers have it."""
    return m.out(m.l(x.transpose(0, 1)).relu().mean(0))


def folded(m, x):
    """Positions among the samples."""
    return m.out(m.l(x.reshape(-1, 8)).relu().view(len(x), -1))


def squared(m, x):
    """As many features as samples at times: in a batch of 8 the product with its transpose has the right shape."""
    return m.out(m.l(x @ x.T @ x))


def linear(**more):
    return {"l": nn.Linear(8, 8), "out": nn.Linear(8, C), **more}


MIXED = {
    "batch norm": (lambda: nn.Sequential(nn.BatchNorm1d(8, track_running_stats=False), nn.Linear(8, C)), (8,)),
    "batch norm without parameters": (
        lambda: nn.Sequential(nn.BatchNorm1d(8, affine=False, track_running_stats=False), nn.Linear(8, C)),
        (8,),
    ),
    "centred on the batch": (lambda: Of(lambda m, x: m.l(x - x.mean(0)), l=nn.Linear(8, C)), (8,)),
    "softmax over the batch": (lambda: Of(lambda m, x: m.l(x).softmax(0), l=nn.Linear(8, C)), (8,)),
    "divided by the number of samples": (lambda: Of(counted, l=nn.Linear(8, C)), (8,)),
    "a look at the samples": (lambda: Of(looks, l=nn.Linear(8, C)), (8,)),
    "neighbours": (lambda: Of(lambda m, x: m.l(x + x.roll(1, 0)), l=nn.Linear(8, C)), (8,)),
    "reversed": (lambda: Of(lambda m, x: m.l(x.flip(0)), l=nn.Linear(8, C)), (8,)),
    "another's row": (lambda: Of(lambda m, x: m.l(x[torch.zeros(len(x), dtype=torch.long)]), l=nn.Linear(8, C)), (8,)),
    "time first": (lambda: Of(stepwise, **linear()), (5, 8)),
    "time among the samples": (lambda: Of(folded, l=nn.Linear(8, 8), out=nn.Linear(40, C)), (5, 8)),
    "products of samples": (lambda: Of(squared, **linear()), (8,)),
    "weights from samples": (Hyper, (8,)),
    "a parameter in a product": (lambda: Of(lambda m, x: m.out(x @ m.l.weight), **linear()), (8,)),
    "a parameter in a sum": (lambda: Of(lambda m, x: m.out(x + m.l.bias), **linear()), (8,)),
    "attention": (
        lambda: nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, 0.0), nn.Flatten(), nn.LazyLinear(C)),
        (5, 8),
    ),
    "prelu": (lambda: nn.Sequential(nn.Linear(8, 8), nn.PReLU(), nn.Linear(8, C)), (8,)),
    "transposed convolution": (
        lambda: nn.Sequential(nn.ConvTranspose1d(2, 2, 3), nn.Flatten(), nn.LazyLinear(C)),
        (2, 4),
    ),
    "uneven padding": (
        lambda: nn.Sequential(nn.Conv1d(2, 2, 2, padding="same"), nn.Flatten(), nn.LazyLinear(C)),
        (2, 4),
    ),
    "normalised weights": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), nn.Linear(8, C)),
        (8,),
    ),
    "a script": (lambda: torch.jit.script(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, C))), (8,)),
    "no gradient at all": (lambda: Of(lambda m, x: m.l(x).detach() * 1.0, l=nn.Linear(8, C)), (8,)),
}


@pytest.mark.filterwarnings(
    "ignore:`torch.jit.script` is", "ignore:enable_nested_tensor is True", "ignore:Using padding="
)
@pytest.mark.parametrize("name", MIXED)
def test_leaves_alone_what_may_mix_samples(name):
    model, shape = MIXED[name]
    model = seeded(partial(lazy, model, shape)).double()
    assert not keeps_apart(model, clients(shape).samples)


@pytest.mark.parametrize("name", ["divided by the number of samples", "time first", "time among the samples", "prelu"])
def test_what_is_left_alone_is_still_right(name):
    """Also where a batch has as many samples as there are positions or features."""
    model, shape = MIXED[name]
    model = seeded(model).double()
    for sizes in [(2, 2, 2), (4, 4), (5, 5, 5, 5)]:
        batch = clients(shape, sizes)
        ours = Gradient().gradients(model, batch)
        rows, losses = slow_gradients(model, batch)
        torch.testing.assert_close(ours.updates, rows, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(ours.losses, losses, rtol=1e-10, atol=1e-12)


def test_positions_among_the_samples_of_larger_batches_only():
    """What a trial cannot see is seen by the number of rows, and left to another way."""

    def forward(m, x):
        return folded(m, x) if len(x) > 5 else m.out(m.l(x).relu().flatten(1))

    model = seeded(lambda: Of(forward, l=nn.Linear(8, 8), out=nn.Linear(40, C))).double()
    batch = clients((5, 8), (7, 7))
    assert keeps_apart(model, batch.samples)
    rows = torch.empty(2, len(flatten(trainable(model).values()))).double()
    with pytest.raises(UnsupportedError):
        fill(model, batch.samples, batch.indices, None, rows, torch.empty(2).double())


def test_a_branch_that_was_not_met_before():
    """A model that mixes samples in larger batches only is caught when it does."""

    def forward(m, x):
        return m.l(x - x.mean(0)) if x.shape[0] > 5 else m.l(x)

    model, batch = seeded(lambda: Of(forward, l=nn.Linear(8, C))).double(), clients((8,), (7, 7))
    assert keeps_apart(model, batch.samples)
    with pytest.raises(UnsupportedError):
        fill(model, batch.samples, batch.indices, None, torch.empty(2, 27).double(), torch.empty(2).double())
    ours = Gradient().gradients(model, batch)
    torch.testing.assert_close(ours.updates, slow_gradients(model, batch)[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e38])
@pytest.mark.parametrize("own", [False, True])
def test_a_sample_that_is_not_finite_spoils_its_client_alone(value, own):
    model = seeded(lambda: Mlp(8, (5,), C))
    batch = clients((8,), (3, 2, 2, 4), dtype=torch.float32)
    before = Gradient().gradients(model, batch, at=spread(model, batch) if own else None)
    batch.samples.inputs[batch.indices[1][0], 2] = value
    after = Gradient().gradients(model, batch, at=spread(model, batch) if own else None)
    assert torch.equal(after.updates[[0, 2, 3]], before.updates[[0, 2, 3]])
    assert torch.equal(after.losses[[0, 2, 3]], before.losses[[0, 2, 3]])
    loop = Gradient(client_chunk=1).gradients(model, batch, at=spread(model, batch) if own else None)
    assert torch.equal(after.updates.isfinite(), loop.updates.isfinite())


def test_a_few_clients_at_a_time(monkeypatch):
    model, batch = seeded(lambda: Mlp(8, (5,), C)).double(), clients((8,), (3, 2, 2, 4, 1, 1, 6))
    rows, losses = slow_gradients(model, batch)
    for room in (1e2, 2e2, 1e3, 1e9):
        monkeypatch.setattr(base, "_NUMBERS_CPU", room)
        result = Gradient().gradients(model, batch)
        torch.testing.assert_close(result.updates, rows, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(result.losses, losses, rtol=1e-10, atol=1e-12)


def computed_side_by_side(monkeypatch, client, model, batch):
    """Whether the clients were computed so."""
    seen = []
    monkeypatch.setattr(base, "fill", lambda *arguments: seen.append(fill(*arguments)))
    client.gradients(model, batch)
    return bool(seen)


@pytest.mark.parametrize(
    ("client", "make", "sizes", "first", "expected"),
    [
        (Gradient(), lambda: Mlp(8, (5,), C), (128, 128), 0, True),
        (Gradient(), lambda: Mlp(8, (5,), C), (100, 157), 0, False),  # more than 128 on average
        (Gradient(), lambda: Mlp(8, (5,), C), (20, 20), -2, False),  # the server's
        (Gradient(client_chunk=1), lambda: Mlp(8, (5,), C), (20, 20), 0, False),
        (Gradient(client_chunk=2), lambda: Mlp(8, (5,), C), (20, 20), 0, False),
        (Gradient(), lambda: nn.Linear(8, C), (1,), 0, True),
        (Gradient(), lambda: Of(counted, l=nn.Linear(8, C)), (20, 20), 0, False),
    ],
)
def test_sizes_and_the_model_choose(monkeypatch, client, make, sizes, first, expected):
    """Full batches of more samples, and the server's few virtual clients, are computed as they have always been."""
    batch = clients((8,), sizes, dtype=torch.float32)
    batch = ClientBatch(batch.samples, batch.indices, range(first, first + len(sizes)))
    assert computed_side_by_side(monkeypatch, client, seeded(make), batch) is expected


def test_as_many_clients_as_have_so_many_numbers():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert clients_that_fit(1678, [32] * 100, 39_760, cpu) == 2**24 // (32 * 1678 + 39_760)
    assert clients_that_fit(1678, [32] * 100, 39_760, gpu) == 2**27 // (32 * 1678 + 39_760)
    assert clients_that_fit(10**6, [10, 30], 5, cpu) == 1


def test_numbers_of_a_sample():
    model = nn.Sequential(nn.Flatten(), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, C))
    assert numbers_per_sample(model, clients((2, 4), dtype=torch.float32).samples) == 8 + 8 + 5 + 5 + 3


def test_how_a_model_is_computed_does_not_depend_on_where_training_stands():
    """A run that diverges, and one that goes on from its checkpoint, are computed in the same way."""
    model, batch = seeded(lambda: Mlp(8, (5,), C)), clients((8,), dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)
    state = torch.get_rng_state()
    assert keeps_apart(model, batch.samples)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.isnan().all() for parameter in model.parameters())


def test_a_layer_that_is_frozen_later_is_looked_at_again():
    model, batch = seeded(lambda: Mlp(8, (5,), C)).double(), clients((8,))
    Gradient().gradients(model, batch)
    model[1].requires_grad_(False)
    result = Gradient().gradients(model, batch)
    assert result.updates.shape == (5, 18)
    torch.testing.assert_close(result.updates, slow_gradients(model, batch)[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["mlp", "lenet", "cnn", "logistic", "lenet_cifar", "raga_mlp", "cifar_mlp"])
def test_models_of_the_papers_are_computed_so(name):
    settings = conf.compose(f"model={name}").model
    shape = (
        (settings.in_features,) if "in_features" in settings else (settings.in_channels, settings.side, settings.side)
    )
    samples = Samples(torch.randn(3, *shape, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2]), 10)
    assert keeps_apart(seeded(lambda: conf.make("model", name)), samples)


def test_local_steps_from_weights_of_their_own():
    model, batch = seeded(lambda: Mlp(8, (5,), C)).double(), clients((8,), (9, 1, 30, 7))
    this_round = Round(3, 0.1, 0)
    ours, loop = (
        LocalSgd(4, "difference", batch_size=6, client_chunk=chunk).updates(model, batch, this_round)
        for chunk in (None, 1)
    )
    torch.testing.assert_close(ours.updates, loop.updates, rtol=1e-10, atol=1e-12)


def test_a_model_too_large_for_two_clients_is_not_copied_for_a_trial(monkeypatch):
    model, batch = seeded(lambda: Mlp(8, (5,), C)).double(), clients((8,))
    monkeypatch.setattr(base, "_NUMBERS_CPU", 100)
    monkeypatch.setattr(base, "keeps_apart", lambda *_: pytest.fail("a trial"))
    torch.testing.assert_close(Gradient().gradients(model, batch).updates, slow_gradients(model, batch)[0])
