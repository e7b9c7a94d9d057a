import pytest
import torch

from lightning_fl.errors import SettingError
from lightning_fl.theory.base import Bound, check_numbers, gradient_bound, gradient_noise, heterogeneity, not_guaranteed


def test_a_bound_prints_its_value_or_what_is_missing():
    assert str(Bound(0.25)) == "0.25"
    refusal = not_guaranteed({"a > 0, got 0": False, "b": True, "c < 1, got 2": False})
    assert refusal == Bound(None, "not guaranteed: needs a > 0, got 0; c < 1, got 2")
    assert str(refusal) == refusal.reason
    assert not_guaranteed({"b": True}) is None


@pytest.mark.parametrize("value", [0, -1.0, torch.inf, torch.nan, [], [1.0, 0.0]])
def test_nonsense_is_an_error(value):
    with pytest.raises(SettingError, match=r"who needs finite x > 0, got"):
        check_numbers("who", above=0, x=value)


def test_zero_may_be_the_least():
    check_numbers("who", least=0, x=0, y=[0.0, 3.0])
    check_numbers("who", x=-5.0)
    with pytest.raises(SettingError, match=r"who needs finite x >= 0, got -1"):
        check_numbers("who", least=0, x=-1)
    with pytest.raises(SettingError, match=r"who needs finite x, got nan"):
        check_numbers("who", x=torch.nan)


def test_estimates_take_the_largest_over_rounds_and_clients():
    gradients = torch.tensor([[[3.0, 4.0], [0.0, 0.0]], [[0.0, 6.0], [5.0, 12.0]]])  # 2 rounds, 2 clients
    objective = torch.tensor([[0.0, 0.0], [0.0, 0.0]])
    assert gradient_bound(gradients) == 13
    assert gradient_bound(gradients[0]) == 5
    assert heterogeneity(gradients, objective) == 13
    assert heterogeneity(gradients, torch.tensor([[3.0, 3.0], [2.0, 8.0]])) == 5  # 1, sqrt(18); sqrt(8), 5


def test_noise_is_a_root_mean_square_over_draws_and_the_largest_over_rounds():
    gradients = torch.zeros(2, 3, 1)  # 2 rounds, 3 clients
    samples = torch.zeros(4, 2, 3, 1)
    samples[:, 0, 0, 0] = torch.tensor([1.0, -1.0, 1.0, -1.0])
    samples[:, 1, 0, 0] = torch.tensor([0.0, 0.0, 0.0, 6.0])  # mean square 9
    samples[:, 0, 2, 0] = torch.tensor([2.0, -2.0, -2.0, 2.0])
    assert gradient_noise(samples, gradients).tolist() == [3, 0, 2]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_estimates_refuse_what_is_not_finite(bad):
    gradients = torch.tensor([[1.0, bad]])
    for estimate in (
        lambda: gradient_bound(gradients),
        lambda: heterogeneity(gradients, torch.zeros(2)),
        lambda: gradient_noise(gradients[None], torch.zeros(1, 2)),
    ):
        with pytest.raises(SettingError, match="finite gradients"):
            estimate()
