import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_fl.aggregator import sign_vote as module
from lightning_fl.aggregator.sign_vote import SignVote
from lightning_fl.contract import hostile
from tests.aggregator import reference
from tests.aggregator import reference_peers as peers

D = 6


def test_literal():
    """The last coordinate of Z is -1, -0.6, -1.2, 0.1, -2, 4, 4.2: its sum is positive, its vote negative."""
    x, z = torch.tensor(reference.X), torch.tensor(reference.Z)
    assert SignVote()(x).tolist() == [1, 1]
    assert SignVote()(z).tolist() == [1, 1, -1]
    assert SignVote()(z[:4]).tolist() == [1, 1, -1]
    assert SignVote()(z[2:4]).tolist() == [1, 1, 0]


def test_a_tie_and_zeros_give_zero():
    assert SignVote()(torch.tensor([[1.0, 0.0, 0.0], [-9.0, -0.0, 2.0]])).tolist() == [0, 0, 1]


@pytest.mark.parametrize("entries", [1, 70, 2**19])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_keeps_dtype_and_argument_and_chunks_do_not_show(monkeypatch, entries, dtype, draw):
    """1001 votes are more than bfloat16 can count."""
    monkeypatch.setattr(module, "_ENTRIES_CPU", entries * 143)
    x = torch.randn(1001, 300, generator=draw).to(dtype)
    before = x.clone()
    y = SignVote()(x)
    assert y.dtype == dtype
    assert torch.equal(x, before)
    assert y.tolist() == peers.sign_vote(x.double().numpy()).tolist()


def test_how_long_an_update_is_does_not_matter(draw):
    x = torch.randn(9, D, generator=draw)
    order = torch.randperm(9, generator=draw)
    lengths = torch.logspace(-30, 30, 9)[:, None]
    assert torch.equal(SignVote()((lengths * x)[order]), SignVote()(x))
    assert torch.equal(SignVote()(-x), -SignVote()(x))


@settings(max_examples=60, deadline=None)
@given(hostile.lists(4, least=0), st.integers(0, 99))
def test_fewer_than_half_do_not_turn_what_all_others_say(values, seed):
    said = torch.randn(D, generator=torch.Generator().manual_seed(seed)).sign()
    assert torch.equal(SignVote()(hostile.rows(said.expand(5, D), values)), said)


def test_autograd_does_not_follow_updates():
    assert not SignVote()(torch.ones(3, 2, requires_grad=True)).requires_grad
