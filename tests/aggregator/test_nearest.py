import torch

from lightning_fl.aggregator.nearest import nearest_weights


def test_a_broken_row_counts_among_the_f():
    distances = torch.tensor([3.0, torch.nan, 1.0, 2.0, torch.inf]).double()
    assert nearest_weights(distances, 1, "ctma").tolist() == [1 / 3, 0, 1 / 3, 1 / 3, 0]
    assert nearest_weights(distances, 3, "ctma").tolist() == [0, 0, 0.5, 0.5, 0]
