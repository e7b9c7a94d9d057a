import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_fl import Updates
from lightning_fl.aggregator import foolsgold as module
from lightning_fl.aggregator.foolsgold import Foolsgold, foolsgold_weights
from lightning_fl.contract import world
from lightning_fl.updates.products import gram_matrix
from tests.aggregator import reference
from tests.aggregator import reference_peers as peers

N, D = 11, 6


def foolsgold(x, history, confidence=1.0, normalize=False):
    """The rule where the sum of each client's updates is this."""
    rows = Updates(x)
    return rows.combine(module._weights(rows, gram_matrix(history), confidence, normalize))


@pytest.mark.parametrize("kappa", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("name", ["random", "badly scaled", "offset"])
def test_agrees_with_the_loop(name, kappa):
    """At an offset 1 - cosine is 1e-10, of which float64 leaves six digits."""
    x, h = reference.problem(name, N, D), reference.problem(name, N, D)[::-1].copy()
    for history in [x, h, np.abs(h)]:
        expected, _ = peers.foolsgold(x, history, kappa)
        found = foolsgold(torch.as_tensor(x), torch.as_tensor(history), kappa)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4 if name == "offset" else 1e-6, atol=1e-12)


def test_literal():
    """First round: rows 5 and 6 are Sybils, rows 1 to 3 count fully, rows 0 and 4 by 0.51.

    Without pardoning rows 0 to 4 would all count fully; divided by the weights' sum 4.02 it is (0.9757,
    1.9011, -0.8036).  In the second round the histories are much more alike.
    """
    z = torch.tensor(reference.Z, dtype=torch.float64)
    result, w = peers.foolsgold(reference.Z, reference.Z)
    np.testing.assert_allclose(w, [0.5103136, 1, 1, 1, 0.5103136, 0, 0], atol=1e-7)
    np.testing.assert_allclose(result, [3.92269, 7.6433172, -3.2309409], atol=1e-6)
    np.testing.assert_allclose(foolsgold_weights(gram_matrix(z)), w, rtol=1e-9)
    np.testing.assert_allclose(Foolsgold()(z), result, rtol=1e-9)
    np.testing.assert_allclose(Foolsgold(normalize=True)(z), result / sum(w), rtol=1e-9)
    second = z * torch.tensor([1.0, -0.5, 2.0]).double()
    expected, w = peers.foolsgold(second.numpy(), (z + second).numpy())
    np.testing.assert_allclose(w, [0, 0.2950379, 0, 1, 0, 0, 0], atol=1e-7)
    np.testing.assert_allclose(foolsgold(second, z + second), expected, rtol=1e-9)


def test_literal_pardon():
    """Cosines 0.8 (rows 0, 1) and 0.6 (rows 1, 2): row 2 is pardoned, 0.6 * 0.6 / 0.8 = 0.45, so alpha = 0.2 0.2 0.55.

    Divided by 0.55: 0.3636 0.3636 1, of which the logits plus 0.5 are -0.0596 and 5.1.  Unpardoned, 0.2 0.2 0.4 gives
    0.5 and logits 0.5: everybody would count.
    """
    h = torch.tensor([[0.8, 0.6, 0.0], [1.0, 0.0, 0.0], [0.6, -0.8, 0.0]], dtype=torch.float64)
    assert foolsgold_weights(gram_matrix(h)).tolist() == [0, 0, 1]


def test_copies_have_no_weight(draw):
    """Whatever their lengths; nobody has, where all are copies."""
    x = torch.randn(N, 1000, generator=draw)
    x[3:] = x[3] * torch.logspace(-15, 15, N - 3)[:, None]
    weights = foolsgold_weights(gram_matrix(x))
    assert (weights > 0).tolist() == [True] * 3 + [False] * (N - 3)
    assert foolsgold(x[3:], x[3:]).tolist() == [0] * 1000


def test_orthogonal_opposite_and_zero_histories_count_fully():
    h = torch.tensor([[3.0, 0.0], [0.0, 2.0], [-9.0, 0.0], [0.0, 0.0]])
    assert foolsgold_weights(gram_matrix(h)).tolist() == [1, 1, 1, 1]
    assert foolsgold(h[:1], h[:1]).tolist() == [3, 0]


def test_scale_and_order(draw):
    """The length of a history does not matter, that of an update does."""
    x = torch.randn(N, D, generator=draw, dtype=torch.float64)
    h = torch.randn(N, D, generator=draw, dtype=torch.float64)
    order = torch.randperm(N, generator=draw)
    lengths = torch.logspace(-3, 3, N, dtype=torch.float64)[:, None]
    torch.testing.assert_close(foolsgold((-3 * x)[order], (lengths * h)[order]), -3 * foolsgold(x, h))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([float("nan"), float("inf"), -float("inf")]), max_size=5),
    st.integers(0, 99),
    st.booleans(),
)
def test_a_broken_update_or_history_has_no_part_in_it(values, seed, single):
    draw = torch.Generator().manual_seed(seed)
    x, h = torch.randn(N, D, generator=draw), torch.randn(N, D, generator=draw)
    expected = foolsgold(x[len(values) :], h[len(values) :])
    for i, value in enumerate(values):
        (x if i % 2 else h)[i, 0 if single else slice(None)] = value
    torch.testing.assert_close(foolsgold(x, h), expected)


def end(rule):
    rule.on_train_batch_end(None, None, None, None, 0)


@pytest.mark.parametrize("columns", [4096, 4, 1])
def test_histories_are_a_clients_own(columns, draw, monkeypatch):
    """Clients 1, 3 and 5, then 1, 2, 3, then all six; an attacker's trial leaves no trace."""
    monkeypatch.setattr(module, "_COLUMNS", columns)
    rule, history = Foolsgold(1.0, False), {}
    for ids in ([1, 3, 5], [1, 2, 3], range(6)):
        x = torch.randn(len(ids), D, generator=draw)
        rule.aggregate(Updates(-10 * x.flip(0), ids=ids), world.oracle())
        before = x.clone()
        aggregation = rule.aggregate(Updates(x, ids=ids), world.oracle())
        assert torch.equal(x, before)
        for row, client in zip(x.double().numpy(), ids, strict=True):
            history[client] = history.get(client, 0) + row
        expected, w = peers.foolsgold(x.double().numpy(), np.array([history[client] for client in ids]))
        np.testing.assert_allclose(aggregation.update, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(aggregation.weights, w, rtol=1e-4, atol=1e-5)
        saved = rule.state_dict()["history"]
        kept = {client: row.clone() for client, row in saved.items()}
        end(rule)
        assert saved.keys() == kept.keys()  # what was saved does not move with later rounds
        assert all(torch.equal(saved[client], kept[client]) for client in kept)
    assert set(rule.state_dict()["history"]) == set(range(6))


def test_a_broken_update_does_not_stay_in_memory(draw):
    """Nor does one that takes the sum beyond float32."""
    rule, clean = Foolsgold(1.0, False), Foolsgold(1.0, False)
    x = torch.randn(5, D, generator=draw)
    for value in [3e38, 3e38, torch.nan]:
        y = x.clone()
        y[4] = value
        aggregation = rule.aggregate(Updates(y, ids=range(5)), world.oracle())
        end(rule)
        clean.aggregate(Updates(x[:4], ids=range(4)), world.oracle())
        end(clean)
    assert aggregation.weights[4] == 0
    history = rule.state_dict()["history"]
    assert history[4].tolist() == pytest.approx([3e38] * D)
    for client, row in clean.state_dict()["history"].items():
        assert torch.equal(history[client], row)
