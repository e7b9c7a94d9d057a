import numpy as np
import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.adversary.fang import Fang
from tests.adversary import reference

SAME = pytest.mark.parametrize("variant", ["trimmed_mean", "median"])


def test_known_answer_against_krum():
    """lambda_0 is 2.2112, and the search halves it twice.  With unsquared distances lambda_0 would be 2.15, with n
    in the denominator 1.86."""
    row, start = reference.fang_krum(reference.HC, 2)
    assert start == pytest.approx(2.2112177)
    np.testing.assert_allclose(row, [-start / 4, -start / 4])
    np.testing.assert_allclose(Fang("krum")(torch.from_numpy(reference.HC), 2), [[-0.55280441, -0.55280441]] * 2)


@pytest.mark.parametrize("name", reference.PROBLEMS)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("b", [1, 3])
def test_against_krum_agrees_with_the_loop(name, seed, b):
    x = reference.problem(name, seed)
    row, _ = reference.fang_krum(x, b)
    np.testing.assert_allclose(Fang("krum")(torch.from_numpy(x), b), [row] * b, rtol=1e-6)


def test_gives_up_where_krum_never_chooses_a_copy():
    """Five equal honest rows far from 0 and one copy."""
    forged = Fang("krum")(torch.full((5, 2), 100.0), 1)
    assert (forged[0] > -1e-5).all()
    assert (forged[0] < -0.4e-5).all()


def test_an_infinite_honest_update_does_not_hold_it_up():
    x = torch.tensor([[-1.0, 2.0], [-2.0, 1.0], [torch.inf, 3.0], [-1.5, 2.5], [-1.0, 2.0]])
    assert not Fang("krum")(x, 1).isfinite().any()


@SAME
@pytest.mark.parametrize(
    ("x", "intervals"),
    [
        (reference.HC, [[-1.4, -0.7], [-2.4, -1.2]]),
        (reference.X[:6] - np.array([1.0, 3.5]), [[1.0, 2.0], [-0.5, -0.25]]),
    ],
)
def test_known_intervals_against_coordinate_rules(variant, x, intervals):
    """The means are (2/15, 7/60) and (-1/6, -131/60); with one side for both signs, as in public code, the second would
    be ((-2, -1), (-7, -3.5))."""
    np.testing.assert_allclose(reference.fang_intervals(x), intervals)
    forged = Fang(variant)(torch.from_numpy(x), 2000).numpy()
    low, high = np.array(intervals).T
    assert (forged >= low - 1e-12).all()
    assert (forged <= high + 1e-12).all()
    np.testing.assert_allclose(forged.mean(0), (low + high) / 2, atol=0.03 * (high - low).max())
    np.testing.assert_allclose(forged.std(0), (high - low) / 12**0.5, rtol=0.05)


@SAME
@pytest.mark.parametrize("name", reference.PROBLEMS)
def test_rows_lie_in_the_loops_intervals(variant, name):
    x = reference.problem(name)
    low, high = reference.fang_intervals(x).T
    forged = Fang(variant)(torch.from_numpy(x), 4).numpy()
    slack = 1e-12 * np.abs(x).max()
    assert (forged >= np.minimum(low, high) - slack).all()
    assert (forged <= np.maximum(low, high) + slack).all()
    assert (forged[0] != forged[1]).any()  # attackers draw for themselves


@SAME
def test_every_client_and_coordinate_has_its_own_draw(variant):
    assert len(Fang(variant)(torch.ones(3, 50, dtype=torch.float64), 4).unique()) == 200


@SAME
def test_where_the_mean_is_0_it_is_sent(variant):
    honest = torch.tensor([[1.0, 2.0], [-1.0, 4.0], [0.0, 3.0]])
    assert Fang(variant)(honest, 3)[:, 0].tolist() == [0, 0, 0]
    assert Fang("krum")(honest, 1)[0, 0] == 0


@pytest.mark.parametrize(("h", "b"), [(4, 3), (2, 1)])
def test_krum_needs_honest_clients_enough(h, b):
    with pytest.raises(SettingError, match=rf"fang against krum needs h >= b \+ 2 and h >= 3 .*got h={h} and b={b}"):
        Fang("krum").check(h, b, 10)
    Fang("median").check(h, b, 10)
