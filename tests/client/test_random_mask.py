import numpy as np
import pytest
import torch

from lightning_fl import Round, Updates
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.rosdhb import Rosdhb
from lightning_fl.client.gradient import Gradient
from lightning_fl.client.random_mask import RandomMask
from lightning_fl.contract import world
from tests.aggregator import reference_field as field


def test_with_momentum_at_the_server_it_is_rosdhb():
    client, rule = RandomMask(Gradient(), ratio=0.5), Rosdhb(Average(), ratio=1.0)
    rounds, ids = [field.S, 1 - field.S], range(5)
    masks = [client.drawn(0, 4, Round(t, 0.1, 0)).tolist() for t in range(2)]
    for t, m in enumerate(field.masked_momenta(rounds, masks, 0.9)):
        rows = torch.as_tensor(rounds[t]).clone()
        client.send(rows, list(ids), Round(t, 0.1, 0))
        found = rule.aggregate(Updates(rows, ids=ids), world.oracle(index=t)).update
        rule.on_train_batch_end(*[None] * 5)
        np.testing.assert_allclose(found, np.mean(m, axis=0), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("mask", ["common", "own"])
def test_masks_are_common_or_own_and_right_on_average(mask):
    client, total, differ = RandomMask(Gradient(), ratio=0.5, mask=mask), torch.zeros(2, 4), 0
    for t in range(400):
        rows = torch.tensor([[1.0, -2.0, 3.0, 4.0]]).repeat(2, 1)
        client.send(rows, [3, 7], Round(t, 0.1, 0))
        assert (rows != 0).sum(1).tolist() == [2, 2]
        total += rows / 400
        differ += not torch.equal(rows[0], rows[1])
    torch.testing.assert_close(total, torch.tensor([[1.0, -2.0, 3.0, 4.0]]).repeat(2, 1), rtol=0.2, atol=0)
    assert (differ > 0) == (mask == "own")


def test_what_is_forged_is_cut_and_not_multiplied():
    client, forged = RandomMask(Gradient(), ratio=0.5), torch.ones(2, 4)
    read = client.read(forged.expand(2, 4), [8, 9], Round(0, 0.1, 0))
    assert read.sum(1).tolist() == [2, 2]
    assert read[0].nonzero().flatten().tolist() == sorted(client.drawn(0, 4, Round(0, 0.1, 0)).tolist())
