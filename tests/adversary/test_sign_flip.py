import torch

from lightning_fl.adversary.sign_flip import SignFlip


def test_known_answer():
    """The spec's example.  With the mean for the sum it would be (-4.5, -9)."""
    assert SignFlip()(torch.tensor([[3.0, 4.0], [0.0, 2.0]]), 2).tolist() == [[-9.0, -18.0]] * 2


def test_attackers_in_turn_sum_what_was_sent_before_them(draw):
    honest = torch.randn(6, 5, generator=draw, dtype=torch.float64)
    sent = list(honest)
    for _ in range(5):
        sent.append(-3 * sum(sent))
    torch.testing.assert_close(SignFlip(in_turn=True)(honest, 5), torch.stack(sent[6:]))


def test_an_even_number_of_attackers_in_turn_cancels_at_unit_length(draw):
    """Why Fed-NGA's table has the same accuracy under sign-flip as under noise."""
    forged = SignFlip(in_turn=True)(torch.randn(6, 5, generator=draw, dtype=torch.float64), 40)
    assert (forged / forged.norm(dim=1, keepdim=True)).sum(0).norm() < 1e-12


def test_averaging_explodes_as_in_the_fed_nga_paper(draw):
    """90 honest and 10 Byzantine clients: 0.9 - 0.1 * 3 * 90 = -26.1 times the honest mean."""
    honest = torch.randn(90, 5, generator=draw, dtype=torch.float64)
    average = torch.cat([honest, SignFlip()(honest, 10)]).mean(0)
    torch.testing.assert_close(average, -26.1 * honest.mean(0))
