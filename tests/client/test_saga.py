from math import ceil

import pytest
import torch

from lightning_fl import ClientBatch, Round, SettingError
from lightning_fl.client.gradient import Gradient
from lightning_fl.client.saga import Saga, _draw
from lightning_fl.contract import world
from tests.client.test_local_sgd import clients


def prepared(batch, size=3):
    client = Saga(size, max_memory_gb=1.0)
    client.prepare(world.model(), batch)
    return client


def slow_gradient(batch, indices):
    net = world.model()
    x, y = batch.samples.gather(indices)
    loss = -torch.log_softmax(net(x), 1)[torch.arange(len(y)), y].mean()
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(net.parameters()))])


def test_mini_batches_cover_each_client_s_samples_once():
    batch = clients()
    client = prepared(batch)
    for i, indices in enumerate(batch.indices):
        blocks = client.cut(i, indices, seed=0)
        assert torch.cat(blocks).sort().values.tolist() == list(range(len(indices)))
        sizes = [len(block) for block in blocks]
        assert len(sizes) == ceil(len(indices) / 3)
        assert max(sizes) <= min(3, min(sizes) + 1)


def test_seeds_cut_the_samples_otherwise():
    batch = clients()
    client = prepared(batch)
    cuts = [torch.cat(client.cut(0, batch.indices[0], seed)).tolist() for seed in (0, 1, 0)]
    assert cuts[0] == cuts[2] != cuts[1]


def test_every_sample_counts_alike():
    """33 samples in mini-batches of 32: once all are seen the upload is the gradient, not half of it one sample's."""
    samples = world.samples(11)
    batch = ClientBatch(samples, [torch.arange(33)], range(1))
    client = prepared(batch, size=32)
    for t in range(20):
        uploads = client.updates(world.model(), batch, Round(t, 0.1, 0)).updates
    gradient = slow_gradient(batch, batch.indices[0])
    assert (uploads[0] - gradient).norm() < 0.05 * gradient.norm()


def test_agrees_with_tables_kept_by_hand():
    batch = clients()
    client = prepared(batch)
    blocks = [client.cut(i, indices, seed=0) for i, indices in enumerate(batch.indices)]
    tables = [[torch.zeros(world.D) for _ in own] for own in blocks]
    for t in range(12):
        uploads = client.updates(world.model(), batch, Round(t, 0.1, 0)).updates
        for i, table in enumerate(tables):
            j = _draw(i, len(table), Round(t, 0.1, 0))
            gradient = slow_gradient(batch, batch.indices[i][blocks[i][j]])
            expected = gradient - table[j] + torch.stack(table).mean(0)
            table[j] = gradient
            torch.testing.assert_close(uploads[i], expected, rtol=1e-4, atol=1e-6)


def test_with_a_full_table_at_one_point_the_noise_is_gone():
    """All v_j = grad f_j(w): every upload is the mean over mini-batches, whichever is drawn."""
    batch = clients()
    client = prepared(batch)
    for t in range(200):
        uploads = client.updates(world.model(), batch, Round(t, 0.1, 0)).updates
    for i in range(4):
        blocks = client.cut(i, batch.indices[i], seed=0)
        mean = torch.stack([slow_gradient(batch, batch.indices[i][block]) for block in blocks]).mean(0)
        torch.testing.assert_close(uploads[i], mean, rtol=1e-4, atol=1e-5)


def test_one_mini_batch_a_client_is_the_gradient():
    batch = clients()
    uploads = prepared(batch, size=50).updates(world.model(), batch, Round(0, 0.1, 0)).updates
    torch.testing.assert_close(uploads, Gradient().updates(world.model(), batch, Round(0, 0.1, 0)).updates)


def test_refuses_a_table_that_does_not_fit():
    client = Saga(1, max_memory_gb=1e-6)
    with pytest.raises(SettingError, match=r"4 clients x 10 mini-batches x 9 parameters.*raise it or"):
        client.prepare(world.model(), clients())


def test_refuses_clients_without_memory():
    batch = clients()
    server = ClientBatch(batch.samples, batch.indices[:1], [-1])
    with pytest.raises(SettingError, match=r"saga remembers something of 4 clients, got client -1"):
        prepared(batch).updates(world.model(), server, Round(0, 0.1, 0))


@pytest.mark.parametrize("settings", [{"batch_size": 0, "max_memory_gb": 1.0}, {"batch_size": 1, "max_memory_gb": 0.0}])
def test_refuses_settings_out_of_range(settings):
    with pytest.raises(SettingError, match="saga needs"):
        Saga(**settings)
