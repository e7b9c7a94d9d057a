"""Trust in clients whose updates were scaled."""

import torch

from lightning_fl.aggregator.trust import equal_shares


def test_scales_do_not_count_and_who_has_no_weight_is_not_trusted():
    found = equal_shares(torch.tensor([0.1, 0.0, 3.0, 0.5, 1e-30], dtype=torch.float64))
    assert found.tolist() == [0.25, 0.0, 0.25, 0.25, 0.25]


def test_nobody_is_trusted_where_all_were_left_out():
    assert equal_shares(torch.zeros(3)).tolist() == [0.0, 0.0, 0.0]
