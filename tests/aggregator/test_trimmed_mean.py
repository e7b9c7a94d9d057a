import torch

from lightning_fl.aggregator.trimmed_mean import TrimmedMean


def test_literal():
    """Without the f largest alone (2.3333, 2.6667), the f smallest alone (32, 7), the furthest row (2.3333, 7)."""
    x = torch.tensor([[1.0, 8.0], [2.0, 6.0], [4.0, 7.0], [90.0, -5.0]])
    assert TrimmedMean(f=1)(x).tolist() == [3.0, 6.5]
    assert TrimmedMean(f=0)(x).tolist() == [24.25, 4.0]


def test_ends_at_the_median(draw):
    x = torch.randn(9, 50, generator=draw)
    assert torch.equal(TrimmedMean(f=4)(x), x.median(0).values)
