from math import erf, sqrt

import numpy as np
import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.adversary.lie import Lie, lie_factor
from lightning_fl.adversary.rop import Rop
from lightning_fl.contract import conf
from tests.adversary import reference


@pytest.mark.parametrize(
    ("h", "b", "share", "z"), [(100, 15, 0.57, 0.1764), (160, 54, 0.6625, 0.4193), (16, 2, 0.5, 0.0)]
)
def test_factor_of_the_boba_papers_settings(h, b, share, z):
    assert lie_factor(h, b) == pytest.approx(z, abs=5e-5)
    assert (1 + erf(lie_factor(h, b) / sqrt(2))) / 2 == pytest.approx(share)


def test_known_answer():
    """RAGA's 0.7 by hand, sample std 2 and sqrt(12).  Population std gives (4.1431, 5.9799), the authors' minus on
    updates (1.6, 1.5751)."""
    forged = Lie(0.7)(torch.tensor([[1.0, 2.0], [3.0, 2.0], [5.0, 8.0]], dtype=torch.float64), 2)
    np.testing.assert_allclose(forged, [[4.4, 4 + 0.7 * sqrt(12)]] * 2)


def test_ragas_words_mean_minus_for_clients_that_upload_models():
    """Models w - 0.5 g of the same three gradients: mean + 0.7 std of models is the update mean - 0.7 std."""
    gradients = torch.tensor([[1.0, 2.0], [3.0, 2.0], [5.0, 8.0]], dtype=torch.float64)
    w = torch.tensor([10.0, -3.0], dtype=torch.float64)
    model = Lie(0.7)(w - 0.5 * gradients, 1)[0]
    np.testing.assert_allclose((w - model) / 0.5, [3 - 0.7 * 2, 4 - 0.7 * sqrt(12)])
    np.testing.assert_allclose(Lie(-0.7)(gradients, 1)[0], [1.6, 4 - 0.7 * sqrt(12)])


def test_alie_is_the_bucketing_papers():
    """mu - z sigma of 20 gradients, 5 attackers: z_max = Phi^-1(12 / 20), as in the authors' code, written out."""
    honest = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x, z = honest.numpy(), 0.2533471031357997
    forged = conf.make("adversary", "alie")(honest, 5)
    np.testing.assert_allclose(forged, [x.mean(0) - z * x.std(0, ddof=1)] * 5, rtol=1e-12)
    np.testing.assert_allclose(Lie()(honest, 5) + forged, 2 * np.broadcast_to(x.mean(0), (5, 3)))


def test_the_first_lines_of_a_run_say_z():
    assert conf.make("adversary", "alie").note(20, 5) == "z = 0.2533: honest mean minus z standard deviations"
    assert conf.make("adversary", "raga_lie").note(20, 5) == "z = 0.7: honest mean plus z standard deviations"


def test_attackers_that_draw_have_the_mean_and_the_deviations_between_them():
    honest = torch.tensor([[1.0, 2.0], [3.0, 2.0], [5.0, 8.0]], dtype=torch.float64)
    forged = Lie(0.7, drawn=True)(honest, 40_000)
    np.testing.assert_allclose(forged.mean(0), [3, 4], atol=0.05)  # 4 standard errors
    np.testing.assert_allclose(forged.std(0), [0.7 * 2, 0.7 * sqrt(12)], rtol=0.02)
    assert abs(torch.corrcoef(forged.T)[0, 1]) < 0.02


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", reference.PROBLEMS)
@pytest.mark.parametrize("factor", [None, -1.5, 0.7])
def test_agrees_with_the_loop(name, dtype, factor):
    honest = torch.tensor(reference.problem(name), dtype=dtype)
    x = honest.double().numpy()
    z = lie_factor(len(x), 3) if factor is None else factor
    forged = Lie(factor)(honest, 3)
    assert forged.dtype == dtype
    atol = 4 * torch.finfo(dtype).eps * np.abs(x).max()
    np.testing.assert_allclose(forged.double(), [x.mean(0) + z * reference.std(x)] * 3, rtol=0, atol=atol)


def test_helps_no_attacker_in_the_boba_papers_ablation(draw):
    """n = 18 and b = 2 give z = 0: the attack is the honest mean."""
    honest = torch.randn(16, 5, generator=draw)
    torch.testing.assert_close(Lie()(honest, 2)[0], honest.mean(0))


def test_a_factor_of_0_is_one(draw):
    """And not none, which would be 0.25."""
    honest = torch.randn(10, 5, generator=draw)
    assert lie_factor(10, 3) > 0.2
    torch.testing.assert_close(Lie(0.0)(honest, 3), honest.mean(0).expand(3, -1))


def test_more_attackers_than_honest_clients_have_nowhere_to_hide():
    for attack in (Lie(), Rop()):
        with pytest.raises(SettingError, match=r"no more Byzantine than honest ones, got 3 and 2"):
            attack.check(2, 3, 10)
    Lie(0.7).check(2, 3, 10)
    Rop(1.0).check(2, 3, 10)
