"""All clients' gradients at once agree with one client after the other."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from lightning_fl import ClientBatch, Samples, SettingError
from lightning_fl.client import base
from lightning_fl.client.base import default_client_chunk
from lightning_fl.client.gradient import Gradient
from lightning_fl.contract import world
from lightning_fl.contract.world import slow_gradients
from lightning_fl.model.mlp import Mlp
from lightning_fl.network.parameters import flatten, trainable


class Conv(nn.Sequential):
    """A small convolutional model for 6 x 6 images of one channel."""

    def __init__(self):
        super().__init__(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3))


def image_clients(sizes, seed=0):
    """Clients of these sizes over images of one channel, 6 x 6, in three classes."""
    draw = torch.Generator().manual_seed(seed)
    n = sum(sizes)
    data = Samples(
        torch.randint(0, 256, (n, 1, 6, 6), generator=draw, dtype=torch.uint8),
        torch.randint(0, 3, (n,), generator=draw),
        3,
        (0.5,),
        (0.3,),
    )
    return ClientBatch(data, list(torch.randperm(n, generator=draw).split(sizes)), range(len(sizes)))


def seeded(make, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make()


def mlp():
    return seeded(lambda: Mlp(36, (8,), 3))


SIZES = [5, 1, 9, 3, 3, 12, 1, 7, 2, 30, 4]


@pytest.mark.parametrize("make", [mlp, lambda: seeded(Conv)], ids=["mlp", "conv"])
@pytest.mark.parametrize("chunk", [1, 2, 7, 100, None])
@pytest.mark.parametrize("sizes", [SIZES, [1, 1, 1], [4], [6] * 8], ids=str)
def test_every_chunk_gives_each_clients_own_gradient(sizes, chunk, make):
    model, batch = make(), image_clients(sizes)
    kept = [p.detach().clone() for p in model.parameters()]
    rows, losses = slow_gradients(model, batch)
    result = Gradient(client_chunk=chunk).gradients(model, batch)
    torch.testing.assert_close(result.updates, rows, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(result.losses, losses, rtol=1e-5, atol=1e-6)
    assert not result.updates.requires_grad
    assert not result.losses.requires_grad
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(p, before) for p, before in zip(model.parameters(), kept, strict=True))


@pytest.mark.parametrize("samples", [1, 5, 11])
def test_slices_of_a_clients_samples_make_up_its_gradient(samples, monkeypatch):
    monkeypatch.setattr(base, "_SLICE_NUMBERS", samples * 36 + 35)
    model, batch = seeded(Conv), image_clients(SIZES)
    rows, losses = slow_gradients(model, batch)
    result = Gradient().gradients(model, batch)
    torch.testing.assert_close(result.updates, rows, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(result.losses, losses, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("chunk", [1, 2, 100, None])
def test_double_precision(chunk):
    model, batch = world.model().double(), world.class_clients(world.samples())
    data = batch.samples
    batch = ClientBatch(
        Samples(data.inputs.double(), data.targets, 3), [*batch.indices, torch.tensor([4, 9])], range(4)
    )
    rows, losses = slow_gradients(model, batch)
    result = Gradient(client_chunk=chunk).gradients(model, batch)
    assert result.updates.dtype == result.losses.dtype == torch.float64
    torch.testing.assert_close(result.updates, rows, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(result.losses, losses, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("chunk", [1, 3, 100, None])
def test_updates_are_written_in_place(chunk):
    model, batch = mlp(), image_clients(SIZES)
    rows, _ = slow_gradients(model, batch)
    whole = torch.full((len(SIZES) + 2, rows.shape[1]), 7.0)
    result = Gradient(client_chunk=chunk).gradients(model, batch, out=whole[1:-1])
    assert result.updates.data_ptr() == whole[1].data_ptr()
    torch.testing.assert_close(whole[1:-1], rows, rtol=1e-4, atol=1e-6)
    assert (whole[[0, -1]] == 7).all()


@pytest.mark.parametrize("chunk", [1, 2, 100, None])
def test_a_clients_update_is_its_own(chunk):
    # The first sample, with which shorter clients are padded, holds NaN; only its owner may notice.
    batch = image_clients([2, 3, 9, 4])
    data = Samples(batch.samples.gather(torch.arange(18))[0], batch.samples.targets, 3)
    data.inputs[0] = float("nan")
    batch = ClientBatch(data, batch.indices, batch.ids)
    owner = [0 in index for index in batch.indices].index(True)
    result = Gradient(client_chunk=chunk).gradients(mlp(), batch)
    assert [bool(row.isfinite().all()) for row in result.updates] == [i != owner for i in range(4)]
    assert [bool(loss.isfinite()) for loss in result.losses] == [i != owner for i in range(4)]


@pytest.mark.parametrize("chunk", [1, 100, None])
def test_frozen_parameters_are_not_uploaded(chunk):
    model, batch = mlp(), image_clients([3, 5])
    model[1].requires_grad_(False)
    rows, _ = slow_gradients(model, batch)
    result = Gradient(client_chunk=chunk).gradients(model, batch)
    assert result.updates.shape == (2, 8 * 3 + 3)
    torch.testing.assert_close(result.updates, rows, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("chunk", [1, 100, None])
def test_an_unused_parameter_has_gradient_zero(chunk):
    class Idle(Mlp):
        def __init__(self):
            super().__init__(36, (), 3)
            self.idle = nn.Parameter(torch.ones(2))

        def forward(self, x):
            return self[1](self[0](x))

    result = Gradient(client_chunk=chunk).gradients(seeded(Idle), image_clients([3, 5]))
    assert (result.updates[:, :2] == 0).all()  # parameters of the module itself come before its children's
    assert (result.updates[:, 2:] != 0).any(1).all()


@pytest.mark.parametrize("chunk", [1, 100, None])
def test_scalar_parameters(chunk):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.linear = nn.Parameter(torch.tensor(2.0)), nn.Linear(36, 3)

        def forward(self, x):
            return self.scale * self.linear(x.flatten(1))

    model, batch = seeded(Scaled), image_clients([3, 5])
    torch.testing.assert_close(
        Gradient(client_chunk=chunk).gradients(model, batch).updates, slow_gradients(model, batch)[0]
    )


def test_a_model_that_looks_at_its_values_is_computed_client_by_client(capsys):
    class Choosing(Mlp):
        def forward(self, x):
            return super().forward(x if x.sum() > 0 else -x)

    model, batch = seeded(lambda: Choosing(36, (8,), 3)), image_clients([3, 5])
    with pytest.raises(SettingError, match=r"Choosing does what torch.vmap cannot do .*; set client_chunk=1"):
        Gradient(client_chunk=2).gradients(model, batch)
    assert not capsys.readouterr().err
    for _ in range(2):
        torch.testing.assert_close(Gradient().gradients(model, batch).updates, slow_gradients(model, batch)[0])
    assert capsys.readouterr().err == (
        "Choosing does what cannot be computed for several clients at once: each is computed by itself "
        "(client_chunk=1).\n"
    )


def sparse():
    return nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Flatten(), nn.Linear(8, 3))


def packed():
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.rnn, self.out = nn.Embedding(9, 4), nn.GRU(4, 5, batch_first=True), nn.Linear(5, 3)

        def forward(self, x):
            lengths = (x > 0).sum(1).clamp(min=1)
            packed = nn.utils.rnn.pack_padded_sequence(self.words(x), lengths, batch_first=True, enforce_sorted=False)
            return self.out(self.rnn(packed)[1][0])

    return Packed()


def checkpointed(reentrant):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(9, 4)
            self.block = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))

        def forward(self, x):
            return checkpoint(self.block, self.words(x).flatten(1), use_reentrant=reentrant)

    return Checkpointed()


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize(
    ("make", "like"),
    [
        (sparse, lambda: nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(8, 3))),
        (packed, packed),
        (partial(checkpointed, True), partial(checkpointed, False)),
        (partial(checkpointed, False), partial(checkpointed, False)),
    ],
    ids=["sparse", "packed", "reentrant", "checkpointed"],
)
def test_a_model_that_only_a_loop_can_compute_is_computed_so(make, like):
    """At the model's parameters, and at those of each client."""
    draw = torch.Generator().manual_seed(0)
    samples = Samples(torch.randint(0, 9, (8, 2), generator=draw), torch.arange(8) % 3, 3)
    batch = ClientBatch(samples, torch.arange(8).split([3, 5]), range(2))
    expected, _ = slow_gradients(seeded(like), batch)
    model = seeded(make)
    torch.testing.assert_close(Gradient().gradients(model, batch).updates, expected)
    at = flatten(trainable(model).values()).expand(2, -1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    torch.testing.assert_close(Gradient().gradients(model, batch, at=at).updates, expected)


@pytest.mark.parametrize("chunk", [1, 2, None])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_mixed_precision_keeps_gradients_in_float32(chunk, dtype):
    """Losses times 1e-4: gradients of 1e-6 and less would vanish from float16, were they not scaled."""

    class Small(Mlp):
        def sample_losses(self, outputs, targets):
            return 1e-4 * F.cross_entropy(outputs, targets, reduction="none")

    model, batch = seeded(lambda: Small(36, (8,), 3)), image_clients(SIZES)
    rows, losses = slow_gradients(model, batch)
    client = Gradient(client_chunk=chunk)
    client.passes = partial(torch.autocast, "cpu", dtype=dtype)
    found = client.gradients(model, batch)
    assert found.updates.dtype == found.losses.dtype == torch.float32
    error = (found.updates - rows).norm(dim=1) / rows.norm(dim=1)
    assert ((error > 1e-5) & (error < {torch.bfloat16: 0.03, torch.float16: 0.004}[dtype])).all()
    torch.testing.assert_close(found.losses, losses, rtol=0.02, atol=0)


@pytest.mark.parametrize("chunk", [1, 100, None])
def test_gradients_are_had_where_none_are_recorded(chunk):
    model, batch = mlp(), image_clients([3, 5])
    rows, _ = slow_gradients(model, batch)
    with torch.no_grad():
        result = Gradient(client_chunk=chunk).gradients(model, batch)
    torch.testing.assert_close(result.updates, rows, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("chunk", [1, 2, None])
def test_the_same_bits_again(chunk):
    model, batch = mlp(), image_clients(SIZES)
    first, second = (Gradient(client_chunk=chunk).gradients(model, batch) for _ in range(2))
    assert torch.equal(first.updates, second.updates)
    assert torch.equal(first.losses, second.losses)


@pytest.mark.parametrize(
    ("model", "d", "device", "chunk"),
    [
        (Conv(), 119, "cpu", 1),
        (nn.Sequential(nn.Sequential(nn.Conv1d(1, 1, 1))), 2, "cpu", 1),
        (Conv(), 119, "cuda", 32),
        (Mlp(784, (200, 200), 10), 199_210, "cpu", 10),
        (Mlp(784, (200, 200), 10), 199_210, "cuda", 32),
        (Mlp(4, (), 2), 2**24, "cpu", 4),  # 4 x 2^24 floats are 256 MiB
        (Mlp(4, (), 2), 2**28, "cpu", 1),
    ],
)
def test_default_chunk_follows_from_model_and_device(model, d, device, chunk):
    assert default_client_chunk(model, d, torch.device(device)) == chunk


@pytest.mark.parametrize("chunk", [0, -3])
def test_chunks_hold_a_client(chunk):
    with pytest.raises(SettingError, match=rf"gradient needs client_chunk >= 1, got {chunk}"):
        Gradient(client_chunk=chunk)
