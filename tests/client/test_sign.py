import torch

from lightning_fl.client.gradient import Gradient
from lightning_fl.client.sign import Sign
from tests.client.test_top_k import ROWS, sent


def test_two_rounds_by_hand():
    """Sizes 2.6 / 4, then that of (0.55, -0.15, -0.85, -0.05), and what the first round has left out."""
    client = Sign(Gradient())
    first, second = sent(client, ROWS[:2])
    torch.testing.assert_close(first, torch.tensor([0.65, -0.65, 0.65, 0.65]))
    torch.testing.assert_close(second, torch.tensor([0.4, -0.4, -0.4, -0.4]))
    torch.testing.assert_close(client.error[1], torch.tensor([0.15, 0.25, -0.45, 0.35]))


def test_a_zero_counts_as_positive():
    (found,) = sent(Sign(Gradient(), feedback=False), torch.tensor([[0.0, -1.0, 0.0, 3.0]]))
    assert found.tolist() == [1, -1, 1, 1]
