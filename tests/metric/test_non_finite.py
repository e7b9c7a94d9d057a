"""How many outputs are none."""

import torch
from torch import inf, nan

from lightning_fl.metric.non_finite import NonFinite


def test_samples_are_counted_once_over_batches_until_the_reset():
    metric = NonFinite()
    metric.update(torch.tensor([[0.0, 1.0], [nan, inf], [1.0, -inf]]), torch.tensor([0, 1, 0]))
    metric.update(torch.tensor([[nan, nan]]), torch.tensor([0]))
    assert metric.compute() == 3
    metric.reset()
    metric.update(torch.tensor([[3e38, -3e38]]), torch.tensor([0]))
    assert metric.compute() == 0
