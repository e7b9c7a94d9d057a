import torch

from lightning_fl import Updates
from lightning_fl.adversary.sign_flip import SignFlip, sign_flip
from lightning_fl.contract import world


def test_known_answer():
    """The spec's example.  With the mean for the sum it would be (-4.5, -9)."""
    assert sign_flip(torch.tensor([[3.0, 4.0], [0.0, 2.0]]), 2).tolist() == [[-9.0, -18.0]] * 2


def test_averaging_explodes_as_in_the_fed_nga_paper(draw):
    """90 honest and 10 Byzantine clients: 0.9 - 0.1 * 3 * 90 = -26.1 times the honest mean."""
    honest = torch.randn(90, 5, generator=draw, dtype=torch.float64)
    average = torch.cat([honest, sign_flip(honest, 10)]).mean(0)
    torch.testing.assert_close(average, -26.1 * honest.mean(0))


def test_data_weights_do_not_count():
    rows = world.honest_updates(4)
    forged = SignFlip(3.0).attack(Updates(rows, torch.arange(4.0)), 2, world.context())
    assert torch.equal(forged, sign_flip(rows, 2, 3.0))
