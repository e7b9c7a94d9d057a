"""Word vectors, a gated recurrent unit, mean pooling."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lightning_fl import ClientBatch, DataError, Samples, SettingError
from lightning_fl.client.gradient import Gradient
from lightning_fl.contract import conf
from lightning_fl.model.gru import Gru


def make(vocabulary=30, width=5, hidden=4, n_classes=3, glove=None, freeze=None):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Gru(vocabulary, width, hidden, n_classes, glove, freeze)


def texts(lengths, length=9, vocabulary=30, seed=0):
    tokens = torch.randint(1, vocabulary, (len(lengths), length), generator=torch.Generator().manual_seed(seed))
    tokens[torch.arange(length) >= torch.tensor(lengths)[:, None]] = 0
    return tokens


class Packed(nn.Module):
    """The authors' net: torch's GRU over packed sequences, with the weights of ours."""

    def __init__(self, model):
        super().__init__()
        self.embedding, self.output = model.embedding, model.output
        self.gru = nn.GRU(model.input.in_features, model.recurrent.in_features, batch_first=True)
        self.gru.weight_ih_l0, self.gru.bias_ih_l0 = model.input.weight, model.input.bias
        self.gru.weight_hh_l0, self.gru.bias_hh_l0 = model.recurrent.weight, model.recurrent.bias

    def forward(self, tokens):
        lengths = (tokens != 0).sum(1)
        packed = pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True)
        means = [states[i, :length].mean(0) for i, length in enumerate(lengths)]
        return self.output(torch.stack(means))


@pytest.mark.parametrize("lengths", [[9, 1, 4, 9, 2], [1], [3, 3]], ids=str)
def test_it_is_torchs_gru_over_packed_sequences(lengths):
    model, tokens = make().double(), texts(lengths)
    packed, targets = Packed(model), torch.arange(len(lengths)) % 3
    torch.testing.assert_close(model(tokens), packed(tokens), rtol=1e-12, atol=1e-14)
    ours, theirs = (
        torch.autograd.grad(F.cross_entropy(net(tokens), targets), list(model.parameters())) for net in (model, packed)
    )
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-14)


def test_it_starts_as_torchs_gru_does():
    model, theirs = make(100, 50, 32, 4), nn.GRU(50, 32)
    for ours, parameter in zip(
        [model.input.weight, model.recurrent.weight, model.input.bias, model.recurrent.bias],
        theirs.parameters(),
        strict=True,
    ):
        assert ours.shape == parameter.shape
        assert 0.9 * 32**-0.5 < ours.abs().max() <= 32**-0.5
        assert abs(ours.std() - (32 * 3) ** -0.5) < 0.01
    assert (model.embedding.weight[0] == 0).all()


def test_padding_changes_nothing():
    model, tokens = make(), texts([9, 4, 1])
    longer = torch.cat([tokens, torch.zeros(3, 6, dtype=torch.int64)], 1)
    torch.testing.assert_close(model(longer), model(tokens))
    with torch.no_grad():
        before = model(tokens)
        model.embedding.weight[0] = 7.0
        torch.testing.assert_close(model(tokens), before)


def test_a_text_without_tokens_gives_the_output_bias():
    model = make()
    torch.testing.assert_close(model(texts([0, 3]))[0], model.output.bias)


@pytest.mark.parametrize("freeze", [None, False, True])
def test_number_of_trained_parameters(freeze):
    # 3 x 32 x (50 + 32) weights, two biases of 96, and 32 x 4 + 4 of the output.
    model = make(1000, 50, 32, 4, None, freeze)
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == 8196 + (0 if freeze else 50_000)


@pytest.mark.parametrize("chunk", [1, 3])
def test_a_frozen_embedding_is_neither_uploaded_nor_changed(chunk):
    model, tokens = make(freeze=True), texts([9, 1, 4, 7, 2, 2])
    before = model.embedding.weight.clone()
    batch = ClientBatch(
        Samples(tokens, torch.arange(6) % 3, 3), [torch.tensor([i, (i + 1) % 6]) for i in range(6)], range(6)
    )
    result = Gradient(client_chunk=chunk).gradients(model, batch)
    parameters = [p for name, p in model.named_parameters() if name != "embedding.weight"]
    for row, index in zip(result.updates, batch.indices, strict=True):
        loss = F.cross_entropy(model(tokens[index]), index % 3)
        expected = torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)])
        torch.testing.assert_close(row, expected, rtol=1e-4, atol=1e-6)
    assert torch.equal(model.embedding.weight, before)


@pytest.fixture
def glove(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text("".join(f"word{k} {k} {k}.5 -{k}\n" for k in range(1, 8)))
    return str(path)


def test_word_vectors_from_a_file_are_frozen(glove):
    # Numbers 0 and 1 are padding and unknown words, word k of the file is number k + 1.
    model = make(vocabulary=6, width=3, glove=glove)
    assert model.embedding.weight[:2].tolist() == [[0.0] * 3] * 2
    assert model.embedding.weight[2:].tolist() == [[k, k + 0.5, -k] for k in range(1, 5)]
    assert not model.embedding.weight.requires_grad
    assert all(p.requires_grad for name, p in model.named_parameters() if name != "embedding.weight")
    assert make(vocabulary=400_002, width=3, glove=glove).embedding.weight.shape == (9, 3)


def test_word_vectors_from_a_file_can_be_trained(glove):
    assert make(vocabulary=6, width=3, glove=glove, freeze=False).embedding.weight.requires_grad


def test_word_vectors_of_another_length_are_refused(glove):
    with pytest.raises(SettingError, match=r"glove.txt holds vectors of length 3, got width=50"):
        make(width=50, glove=glove)


@pytest.mark.parametrize("given", [False, True])
def test_a_vocabulary_has_a_word(given, glove):
    with pytest.raises(SettingError, match="gru needs vocabulary >= 3, got 2"):
        make(vocabulary=2, width=3, glove=glove if given else None)


def test_a_missing_file_of_word_vectors_is_named(tmp_path):
    with pytest.raises(DataError, match=r"absent.txt"):
        make(glove=str(tmp_path / "absent.txt"))


def test_vocabulary_and_word_vectors_follow_the_data():
    model = conf.compose("model=gru", "data=ag_news", "data.vocabulary=123", "data.glove=vectors.txt").model
    assert (model.vocabulary, model.glove) == (123, "vectors.txt")
    model = conf.compose("model=gru").model  # data that know no words
    assert (model.vocabulary, model.glove) == (20_000, None)
