import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_fl import SettingError, Updates
from lightning_fl.aggregator.fltrust import Fltrust
from lightning_fl.contract import hostile, world

N, D = 9, 6


def test_literal():
    """By hand; cosines 1, 0.6, -1.

    Without rescaling to the server's length: (4.25, 1.5); without ReLU: (7.87, 1.6); over n: (0.907, 0.32).
    """
    x = torch.tensor([[5.0, 0.0], [3.0, 4.0], [-9.0, 0.0]])
    torch.testing.assert_close(Fltrust()(x, torch.tensor([2.0, 0.0])), torch.tensor([1.7, 0.6]))


@pytest.mark.parametrize(
    ("rows", "server"),
    [
        ([[-1.0, 0.0], [0.0, 3.0]], [2.0, 0.0]),  # against the server, or at a right angle
        ([[1.0, 0.0], [0.0, 3.0]], [0.0, 0.0]),  # the server has nothing to compare with
        ([[0.0, 0.0], [float("nan"), 3.0]], [2.0, 0.0]),  # nobody has a direction
    ],
)
def test_trusting_nobody_the_model_stays_put(rows, server):
    assert torch.equal(Fltrust()(torch.tensor(rows), torch.tensor(server)), torch.zeros(2))


@pytest.mark.parametrize("seed", range(10))
def test_length_of_a_client_does_not_count_and_directions_turn_with_the_rows(seed):
    draw = torch.Generator().manual_seed(seed)
    x, server = torch.randn(N, D, generator=draw).double(), torch.randn(D, generator=draw).double()
    rotation = torch.linalg.qr(torch.randn(D, D, generator=draw).double()).Q
    lengths = torch.logspace(-12, 12, N).double()[:, None]
    torch.testing.assert_close(
        Fltrust()(lengths * x @ rotation, 5 * server @ rotation), 5 * Fltrust()(x, server) @ rotation
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 30), hostile.lists(N, also=[1e-40]), st.sampled_from([1, None]))
def test_hostile_rows_make_it_no_longer_than_the_servers(seed, values, entries):
    draw = torch.Generator().manual_seed(seed)
    honest, server = torch.randn(N, D, generator=draw), torch.randn(D, generator=draw)
    result = Fltrust()(hostile.rows(honest, values, entries), server)
    assert result.isfinite().all()
    assert result.norm() <= (1 + 1e-5) * server.norm()


@pytest.mark.parametrize(
    ("server", "message"),
    [([1.0, torch.inf], "finite server update, got NaN or inf"), ([1.0, 1.0, 1.0], "length 2, got 3")],
)
def test_a_server_update_that_no_rule_can_serve(server, message):
    with pytest.raises(SettingError, match=message):
        Fltrust()(torch.ones(3, 2), torch.tensor(server))


def test_the_class_asks_the_server_and_reports_the_factors():
    updates, oracle = world.updates(), world.oracle()
    aggregation = Fltrust().aggregate(updates, oracle)
    assert torch.equal(aggregation.update, Fltrust()(updates.rows, oracle.update))
    torch.testing.assert_close(aggregation.weights.float() @ updates.rows, aggregation.update)
    assert aggregation.weights.sum() > 0
    cosines = torch.nn.functional.cosine_similarity(updates.rows.double(), oracle.update.double()[None]).clamp(min=0)
    torch.testing.assert_close(aggregation.trust, cosines / cosines.sum())
    nobody = Fltrust().aggregate(Updates(-oracle.update[None]), oracle)
    assert nobody.trust.tolist() == [0.0]
