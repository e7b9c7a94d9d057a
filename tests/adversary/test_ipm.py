import pytest
import torch

from lightning_fl.adversary.ipm import Ipm


def test_sends_minus_factor_times_the_mean():
    """With the sum for the mean it would be (-20, -10); with the sign forgotten (10, 5)."""
    assert Ipm(5.0)(torch.tensor([[1.0, 0.0], [3.0, 2.0]]), 2).tolist() == [[-10.0, -5.0]] * 2


@pytest.mark.parametrize(("h", "b", "ratio"), [(100, 15, -0.435), (160, 54, -1.776), (16, 2, -0.222)])
def test_averaging_ascends_as_the_boba_paper_says(h, b, ratio, draw):
    honest = torch.randn(h, 5, generator=draw, dtype=torch.float64)
    average = torch.cat([honest, Ipm()(honest, b)]).mean(0)
    torch.testing.assert_close(
        average / honest.mean(0), torch.full((5,), ratio, dtype=torch.float64), rtol=0, atol=5e-4
    )
