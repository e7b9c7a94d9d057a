"""Dropout by seed, round and client."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import vmap

from lightning_fl import ClientBatch, Round, Samples, SettingError
from lightning_fl.client.base import minibatches
from lightning_fl.client.gradient import Gradient
from lightning_fl.client.local_sgd import LocalSgd
from lightning_fl.client.saga import Saga
from lightning_fl.contract import world
from lightning_fl.network.dropout import KeyedDropout, client_keys, sample_keys
from lightning_fl.network.facts import uses_dropout
from tests import training


def split_mix(seed, count):
    """SplitMix64 as its authors print it, in whole numbers."""
    found, state = [], seed
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        found.append(z ^ (z >> 31))
    return found


def signed(values):
    return [value - 2**64 if value >= 2**63 else value for value in values]


def dropping(p=0.5):
    """A net with dropout of numbers and of channels."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        inner = [nn.Linear(2, 12), nn.Tanh(), nn.Dropout(p), nn.Unflatten(1, (4, 3)), nn.Dropout1d(p), nn.Flatten()]
        return nn.Sequential(*inner, nn.Linear(12, 3))


def clients(ids=(0, 1, 2), sizes=(6, 2, 5)):
    found = world.class_clients(world.samples())
    return replace(found, indices=[x[:n] for x, n in zip(found.indices, sizes, strict=True)], ids=ids)


def test_the_generator_is_the_published_one():
    assert split_mix(1234567, 2) == [6457827717110365317, 3203168211198807973]  # as its authors' C code prints
    assert sample_keys(torch.tensor(1234567), 5).tolist() == signed(split_mix(1234567, 5))
    assert sample_keys(torch.tensor([[3], [2**62]]), 4)[1, 0].tolist() == signed(split_mix(2**62, 4))


@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
def test_numbers_are_dropped_as_the_loop_says(p):
    x = torch.rand(3, 2, 4) + 1
    with KeyedDropout(torch.tensor([7, 8, 9])):
        first, second = nn.Dropout(p)(x), nn.Dropout(p)(x)
    for layer, out in enumerate([first, second]):
        for sample, seed in enumerate([7, 8, 9]):
            numbers = split_mix(split_mix(seed, layer + 1)[-1], 8)
            kept = torch.tensor([number >> 40 >= p * 2**24 for number in numbers]).view(2, 4)
            expected = torch.where(kept, x[sample] / (1 - p if p < 1 else 1), 0.0)
            torch.testing.assert_close(out[sample], expected)


@pytest.mark.parametrize("layer", [nn.Dropout1d, nn.Dropout2d, nn.Dropout3d])
def test_channels_are_dropped_as_a_whole(layer):
    shape = {nn.Dropout1d: (5,), nn.Dropout2d: (5, 2), nn.Dropout3d: (5, 2, 2)}[layer]
    with KeyedDropout(torch.arange(40)):
        out = layer(0.25)(torch.ones(40, 50, *shape)).flatten(2)
    assert out.unique().tolist() == pytest.approx([0, 4 / 3])
    assert torch.equal(out.amin(2), out.amax(2))
    assert abs((out == 0).float().mean() - 0.25) < 0.03  # 2,000 channels: three standard deviations


@pytest.mark.filterwarnings("ignore:dropout")
@pytest.mark.parametrize("layer", [nn.Dropout1d, nn.Dropout2d, nn.Dropout3d])
@pytest.mark.parametrize("dims", [2, 3, 4, 5])
def test_what_is_dropped_as_a_whole_is_what_torch_drops(layer, dims):
    """Where torch gives the same for all of a pair of samples and channels, or for all of a sample."""
    x = torch.ones(40, *[7] * (dims - 1))

    def shared(out):
        return [torch.equal(out.amin(tuple(range(k, dims))), out.amax(tuple(range(k, dims)))) for k in range(1, dims)]

    torch.manual_seed(0)
    if layer is nn.Dropout1d and dims > 3:
        with pytest.raises(RuntimeError):
            layer(0.5)(x)
        return
    expected = shared(layer(0.5)(x))
    with KeyedDropout(torch.arange(40)):
        assert shared(layer(0.5)(x)) == expected


class Layer(nn.Module):
    """A layer of torch's with a head."""

    def __init__(self, layer, **settings):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.settings, self.out = layer(), settings, nn.Linear(8, 3)

    def forward(self, x):
        h = self.layer(x, x, x, **self.settings) if isinstance(self.layer, nn.MultiheadAttention) else self.layer(x)
        return self.out((h[0] if isinstance(h, tuple) else h).mean(1))


def attention(p):
    return nn.MultiheadAttention(8, 2, dropout=p, batch_first=True)


RECURRENT = {"num_layers": 2, "batch_first": True, "bidirectional": True}
LAYERS = {
    "attention": lambda p=0.3: Layer(lambda: attention(p), need_weights=False),
    "attention with weights": lambda p=0.3: Layer(lambda: attention(p)),
    "causal attention": lambda p=0.3: Layer(
        lambda: attention(p), need_weights=False, attn_mask=torch.ones(5, 5).tril() == 0, is_causal=True
    ),
    "transformer": lambda p=0.3: Layer(lambda: nn.TransformerEncoderLayer(8, 2, 16, p, batch_first=True)),
    "lstm": lambda p=0.3: Layer(lambda: nn.LSTM(8, 4, dropout=p, **RECURRENT)),
    "gru": lambda p=0.3: Layer(lambda: nn.GRU(8, 4, dropout=p, **RECURRENT)),
    "rnn": lambda p=0.3: Layer(lambda: nn.RNN(8, 4, dropout=p, **RECURRENT)),
}


def sequences():
    draw = torch.Generator().manual_seed(0)
    samples = Samples(torch.randn(9, 5, 8, generator=draw), torch.arange(9) % 3, 3)
    return minibatches(ClientBatch(samples, torch.arange(9).split([4, 2, 3]), range(3)), None, Round(0, 0.1, 0))[0]


@pytest.mark.parametrize("name", LAYERS)
def test_torchs_own_layers_drop_by_the_rounds_seed(name, capsys):
    batch, model = sequences(), LAYERS[name]()
    state = torch.get_rng_state()
    loop = Gradient(client_chunk=1).gradients(model, batch).updates
    found = Gradient().gradients(model, batch).updates
    torch.testing.assert_close(found, loop, rtol=1e-4, atol=1e-6)
    assert torch.equal(torch.get_rng_state(), state)
    assert ("each is computed by itself" in capsys.readouterr().err) == (name in ("lstm", "gru", "rnn"))
    plain = Gradient(client_chunk=1).gradients(LAYERS[name](0.0), batch).updates
    assert ((loop - plain).norm(dim=1) > 0.01 * plain.norm(dim=1)).all()


@pytest.mark.parametrize("name", LAYERS)
def test_torchs_own_layers_without_what_is_dropped(name):
    """Every number is kept by keys whose draws are all 1, up to the factor 1 / (1 - p), which p this small hides."""
    x, model = sequences().samples.inputs, LAYERS[name](1e-12)
    with KeyedDropout(torch.arange(9)):
        found = model(x)
    torch.testing.assert_close(found, LAYERS[name](0.0)(x))


def test_attention_drops_the_share_that_it_says_and_scales_the_rest():
    """Of equal keys all weights are 1 / 50; values tell them apart."""
    zeros, values = torch.zeros(40, 2, 50, 50), torch.eye(50).expand(40, 2, 50, 50)
    with KeyedDropout(torch.arange(40)):
        weights = F.scaled_dot_product_attention(zeros, zeros, values, dropout_p=0.2)
    assert weights.unique().tolist() == pytest.approx([0, 1 / 40])  # (1 / 50) / 0.8
    assert abs((weights == 0).float().mean() - 0.2) < 0.003  # 200,000 weights: three standard deviations


def test_a_row_that_sees_nothing_is_zero_as_torchs_is():
    x = torch.randn(3, 1, 4, 2, requires_grad=True)
    mask = torch.ones(3, 1, 4, 4, dtype=torch.bool)
    mask[0, 0, 1] = False
    with KeyedDropout(torch.arange(3)):
        found = F.scaled_dot_product_attention(x, x, x, mask, dropout_p=1e-12)
    torch.testing.assert_close(found, F.scaled_dot_product_attention(x, x, x, mask))
    (gradient,) = torch.autograd.grad(found.sum(), x)
    assert gradient.isfinite().all()


def test_packed_sequences_drop_nothing_between_layers():
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(3, 5, 8), torch.tensor([5, 4, 2]), batch_first=True)
    with KeyedDropout(torch.arange(3)), pytest.raises(SettingError, match="needs a padded batch, got a packed"):
        nn.LSTM(8, 4, 2, dropout=0.5)(packed)


def test_draws_are_as_good_as_independent():
    with KeyedDropout(sample_keys(client_keys([0, 1], Round(0, 0.1, 0), 0), 50).flatten()):
        first, second = (nn.Dropout(0.5)(torch.ones(100, 400)) - 1 for _ in range(2))  # +-1
    bound = 4 / 40_000**0.5
    for product in [
        first,
        first * second,
        first[:, 1:] * first[:, :-1],
        first[1:] * first[:-1],
        first[50:] * first[:50],
    ]:
        assert abs(product.mean()) < bound * (40_000 / product.numel()) ** 0.5


def test_nothing_is_dropped_without_keys_or_in_evaluation():
    x = torch.ones(4, 5)
    with KeyedDropout(None):
        assert torch.equal(nn.Dropout(0.5)(x), x)
    with KeyedDropout(torch.arange(4)):
        assert torch.equal(nn.Dropout(0.5).eval()(x), x)
        assert torch.equal(nn.Dropout(0.0)(x), x)


@pytest.mark.parametrize("drop", [F.dropout, F.dropout1d, F.dropout2d])
def test_in_place_it_changes_its_input(drop):
    x = torch.ones(3, 4, 5) if drop is F.dropout1d else torch.ones(3, 4, 5, 5)
    with KeyedDropout(torch.arange(3)):
        expected = drop(x)
    given = x.clone()
    with KeyedDropout(torch.arange(3)):
        drop(given, inplace=True)
    assert torch.equal(given, expected)
    assert (given == 0).any()


def test_tokens_of_a_sample_share_its_key():
    x = torch.ones(3, 4, 5)
    with KeyedDropout(torch.arange(3)):
        nested = nn.Dropout(0.5)(x)
    with KeyedDropout(torch.arange(3)):
        assert torch.equal(nn.Dropout(0.5)(x.flatten(0, 1)), nested.flatten(0, 1))
    with KeyedDropout(torch.arange(3)), pytest.raises(SettingError, match=r"the 3 samples .* got shape \(4, 3\)"):
        nn.Dropout(0.5)(torch.ones(4, 3))


@pytest.mark.parametrize("client", [Gradient, lambda **c: LocalSgd(3, batch_size=2, **c)], ids=["gradient", "local"])
def test_the_number_of_clients_at_a_time_does_not_matter(client):
    loop, *others = (
        client(client_chunk=k).updates(dropping(), clients(), Round(3, 0.1, 0)).updates for k in (1, 2, 3, None)
    )
    for other in others:
        torch.testing.assert_close(other, loop, rtol=1e-4, atol=1e-6)
    plain = client(client_chunk=1).updates(dropping(0.0), clients(), Round(3, 0.1, 0)).updates
    assert ((plain - loop).norm(dim=1) > 0.01 * plain.norm(dim=1)).all()


def test_draws_depend_on_seed_round_client_and_step_alone():
    def compute(seed=0, index=0, **who):
        torch.manual_seed(seed + 5)
        state = torch.get_rng_state()
        found = Gradient().updates(dropping(), clients(**who), Round(index, 0.1, seed)).updates
        assert torch.equal(torch.get_rng_state(), state)
        return found

    assert torch.equal(compute(), compute())
    assert not torch.isclose(compute(), compute(seed=1)).all(1).any()
    assert not torch.isclose(compute(), compute(index=1)).all(1).any()
    other = compute(ids=(0, 7, 2))
    assert torch.isclose(compute(), other).all(1).tolist() == [True, False, True]
    keys = [client_keys([4], Round(0, 0.1, 0), step).item() for step in range(3)]
    assert len(set(keys)) == 3


def test_clients_side_by_side_two_at_a_time_drop_their_own_numbers(monkeypatch):
    alone = Gradient(client_chunk=1).updates(dropping(), clients(), Round(3, 0.1, 0)).updates
    monkeypatch.setattr("lightning_fl.client.base.clients_that_fit", lambda *_: 2)
    found = Gradient().updates(dropping(), clients(), Round(3, 0.1, 0)).updates
    torch.testing.assert_close(found, alone, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", [None, 3])
def test_each_local_step_drops_other_numbers(size):
    """Of clients that have the same single sample in every step."""
    steps = minibatches(clients(sizes=(1, 1, 1)), size, Round(3, 0.1, 0), 3)
    found = [Gradient().gradients(dropping(), batch).updates for batch in steps]
    plain = [Gradient().gradients(dropping(0.0), batch).updates for batch in steps]
    for first, second in [(0, 1), (0, 2), (1, 2)]:
        assert torch.equal(plain[first], plain[second])
        assert not torch.isclose(found[first], found[second]).all(1).any()


def test_saga_draws_too():
    saga = Saga(batch_size=2)
    saga.prepare(dropping(), clients())
    assert saga.updates(dropping(), clients(), Round(0, 0.1, 0)).updates.isfinite().all()


def test_a_batch_that_names_no_round_is_refused():
    assert uses_dropout(dropping(), world.samples())
    assert not uses_dropout(dropping(0.0), world.samples())
    assert not uses_dropout(dropping().eval(), world.samples())
    with pytest.raises(SettingError, match="dropout draws by round and step"):
        Gradient().gradients(dropping(), clients())


def test_the_server_measures_without_dropout():
    oracle, plain = world.oracle(), world.oracle()
    oracle.model, plain.model = dropping(), dropping(0.0)
    rows = 0.1 * torch.randn(4, 75, generator=torch.Generator().manual_seed(0))
    assert torch.equal(oracle.losses_after(rows), plain.losses_after(rows))
    assert torch.equal(oracle.gradient_after(rows[0], 0.1), plain.gradient_after(rows[0], 0.1))
    assert not torch.isclose(oracle.class_updates, plain.class_updates).all(1).any()


def test_a_run_evaluates_without_dropout_and_resumes_with_it(tmp_path):
    def run(rounds, start=None):
        module = training.module()
        module.model = dropping()
        trainer = training.trainer(rounds=rounds)
        torch.manual_seed(rounds)
        training.fit(trainer, module, training.data(), start)
        return module, trainer

    whole, _ = run(4)
    _, half = run(2)
    half.save_checkpoint(tmp_path / "half.ckpt")
    resumed, trainer = run(4, tmp_path / "half.ckpt")
    for ours, theirs in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    data = training.data()
    data.setup()
    inputs, targets = data.test.gather(torch.arange(len(data.test)))
    accuracy = (whole.model.eval()(inputs).argmax(1) == targets).float().mean().item()
    assert whole.evaluation["accuracy"] == pytest.approx(accuracy, abs=1e-6)
    training.evaluate(trainer, resumed)
    assert resumed.evaluation == whole.evaluation


class Noisy(nn.Module):
    """Draws as no layer of dropout does."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 3)

    def forward(self, x):
        return self.layer(x + torch.randn_like(x))


class Forgetful(Noisy):
    """Drops in evaluation, too."""

    def forward(self, x):
        return self.layer(F.dropout(x, 0.5))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Noisy(), "Noisy draws random numbers outside nn.Dropout"),
        (nn.Sequential(Forgetful()), r"outside nn.Dropout in evaluation, in 0 \(Forgetful\), which no seed"),
        (nn.Sequential(nn.Linear(2, 3), nn.AlphaDropout(0.1)), r"1 \(AlphaDropout\).* use nn.Dropout or set p=0"),
    ],
    ids=["noise", "in evaluation", "alpha"],
)
def test_other_draws_are_refused(model, message):
    with pytest.raises(SettingError, match=message):
        training.fit(training.trainer(), type(training.module())(model), training.data())


def test_under_vmap_each_client_has_its_own_keys():
    def drop(x, keys):
        with KeyedDropout(keys):
            return nn.Dropout(0.5)(x)

    keys, x = torch.arange(6).view(2, 3), torch.ones(2, 3, 10)
    together = vmap(drop)(x, keys)
    assert torch.equal(together, torch.stack([drop(*pair) for pair in zip(x, keys, strict=True)]))
    assert not torch.equal(together[0], together[1])
