import torch

from lightning_fl.aggregator.meamed import Meamed
from tests.aggregator import reference


def test_literal():
    """In the first column the medians are 1 and 0.85, and 0, 0.2, 0.7, 1, 1.1 count (2 is as near as 0); in the second
    0, 0.5, 1.1, 1.3, 2 around 1.1 and 1.2.

    The trimmed mean of all seven is (0.9333, 0.9667); the mean of distances to the median (0.48, 0.58).
    """
    x = torch.tensor(reference.X, dtype=torch.float64)
    torch.testing.assert_close(Meamed(2)(x), torch.tensor([0.6, 0.98]).double(), rtol=1e-7, atol=0)
    torch.testing.assert_close(Meamed(1)(x[:6]), torch.tensor([0.6, 0.98]).double(), rtol=1e-7, atol=0)


def test_literal_around_the_median_not_the_trimmed_mean():
    """Of 0, 3, 4, 9, 10 the median 4 drops 10; the trimmed mean 5.33 would drop 0 and give 6.5."""
    assert Meamed(1)(torch.tensor([[0.0], [3.0], [4.0], [9.0], [10.0]])).item() == 4


def test_literal_middle_of_an_even_number():
    """Around 5.5, 0 is farthest of 0, 4, 7, 10 (around 4, 10 is); around 4.5, 10 of 0, 3, 6, 10 (around 6, 0 is)."""
    assert Meamed(1)(torch.tensor([[0.0], [4.0], [7.0], [10.0]])).item() == 7
    assert Meamed(1)(torch.tensor([[0.0], [3.0], [6.0], [10.0]])).item() == 3
