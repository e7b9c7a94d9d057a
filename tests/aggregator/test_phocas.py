import torch

from lightning_fl.aggregator.phocas import Phocas
from tests.aggregator import reference


def test_literal():
    """f = 2: trimmed means 0.9333 and 0.9667, around which 0, 0.2, 0.7, 1, 1.1 and 0, 0.5, 1.1, 1.3, 2 count.

    f = 1: trimmed means 1 (2 is as near as 0, 10 is not) and 0.98; all but 10, all but -9.
    """
    x = torch.tensor(reference.X, dtype=torch.float64)
    torch.testing.assert_close(Phocas(2)(x), torch.tensor([0.6, 0.98]).double(), rtol=1e-7, atol=0)
    torch.testing.assert_close(Phocas(1)(x), torch.tensor([5 / 6, 7.9 / 6]).double(), rtol=1e-7, atol=0)


def test_literal_around_the_trimmed_mean_not_the_median():
    """Of 0, 3, 4, 9, 10 the trimmed mean 5.33 drops 0; the median 4 would drop 10 and give 4, the mean 5.2 0 too."""
    assert Phocas(1)(torch.tensor([[0.0], [3.0], [4.0], [9.0], [10.0]])).item() == 6.5


def test_literal_trimmed_at_both_ends():
    """Of 0, 1, 2, 9, 50 the trimmed mean 4 drops 50 (3); without 50 alone it would be 3, without 0 alone 15.5."""
    assert Phocas(1)(torch.tensor([[0.0], [1.0], [2.0], [9.0], [50.0]])).item() == 3
