from collections import Counter

import pytest
import torch

from lightning_fl import Updates
from lightning_fl.aggregator.draw_order import draw_order


@pytest.mark.parametrize("ids", [None, [7, 3, 11, 5]], ids=["rows", "clients"])
def test_the_draw_is_fair_and_follows_the_clients(ids):
    """Of 24 orders of four rows, two of them copies, each comes in 1/24 of 2,400 draws: 100, standard deviation 9.8."""
    x = torch.tensor([[1.0], [2.0], [2.0], [4.0]])
    counts = Counter(tuple(draw_order(Updates(x, ids=ids), seed).tolist()) for seed in range(2400))
    assert len(counts) == 24
    assert 60 < min(counts.values()) <= max(counts.values()) < 140
    if ids:
        place = [2, 0, 3, 1]
        for seed in range(20):
            order, moved = (
                draw_order(Updates(rows, ids=names), seed)
                for rows, names in [(x, ids), (x[place], [ids[i] for i in place])]
            )
            assert torch.tensor(place)[moved].tolist() == order.tolist()
