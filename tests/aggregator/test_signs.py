import torch

from lightning_fl.aggregator.signs import sign_sums


def test_many_signs_in_bfloat16_are_counted_exactly():
    assert sign_sums(torch.ones(301, 3, dtype=torch.bfloat16)).tolist() == [301] * 3
