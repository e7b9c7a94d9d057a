"""A trigger in four parts."""

import pytest
import torch

from lightning_fl import FederatedDataModule, Federation, SettingError
from lightning_fl.adversary.dba import Dba
from lightning_fl.contract import world
from lightning_fl.contract.images import pictures
from lightning_fl.partition.iid import Iid


def test_the_authors_trigger():
    pixels = Dba().bars(28, 28)
    where = [[(r, c) for r, c in part.nonzero().tolist()] for part in pixels]
    assert where == [
        [(0, 0), (0, 1), (0, 2), (0, 3)],
        [(0, 6), (0, 7), (0, 8), (0, 9)],
        [(3, 0), (3, 1), (3, 2), (3, 3)],
        [(3, 6), (3, 7), (3, 8), (3, 9)],
    ]


def test_gap_length_and_shift():
    pixels = Dba(2, 1, 3).bars(6, 9)
    assert pixels.sum(0).nonzero().tolist() == [
        *([3, 3], [3, 4], [3, 6], [3, 7]),
        *([5, 3], [5, 4], [5, 6], [5, 7]),
    ]
    for height, width in [(5, 9), (6, 7)]:
        with pytest.raises(SettingError, match=rf"6 x 8 pixels does not fit into images of {height} x {width}; lower"):
            Dba(2, 1, 3).bars(height, width)


def test_each_client_has_its_part_and_the_test_all():
    attack, images, draw = Dba(), torch.zeros(1, 1, 12, 12), torch.Generator()
    pixels = attack.bars(12, 12)
    for client in range(9):
        assert torch.equal(attack.mark(images, client, draw)[0, 0] == 1, pixels[client % 4])
    assert torch.equal(attack.mark(images, None, draw)[0, 0] == 1, pixels.any(0))
    test = pictures(world.samples(2))
    assert (attack.triggered(test).inputs[:, 0, :4, :10][:, pixels.any(0)[:4, :10]] == 1).all()


def test_attackers_share_the_parts_whatever_their_numbers():
    class Images(FederatedDataModule):
        def load(self):
            return pictures(world.samples(40)), pictures(world.samples(2))

    data = Images(Iid(), Federation(16, 4, "replacement", "uniform", which=[0, 4, 8, 12]), 2, 0, 0, eval_batch_size=16)
    data.prepare_data()
    data.setup("fit")
    attack, pixels = Dba(), Dba().bars(12, 12)
    attack.check_data(data)
    for j, client in enumerate([0, 4, 8, 12]):
        marked = attack.mark(torch.zeros(1, 1, 12, 12), client, torch.Generator())
        assert torch.equal(marked[0, 0] == data.train.inputs.max(), pixels[j])


def test_scaled_by_its_factor():
    rows = torch.tensor([[1.0, -2.0]])
    assert Dba(factor=100.0).finish(rows, 5, world.context()).tolist() == [[100.0, -200.0]]
