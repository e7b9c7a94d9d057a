from math import inf, nan

import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.adversary.non_finite import NonFinite, non_finite
from lightning_fl.contract import world

HONEST = torch.tensor([[1.0, 2.0], [3.0, 6.0]])


@pytest.mark.parametrize(
    ("kind", "row"), [("nan", [nan, nan]), ("inf", [inf, inf]), ("huge", [1e30, 1e30]), ("one_coordinate", [nan, 4.0])]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_each_kind(kind, row, dtype):
    forged = non_finite(HONEST.to(dtype), 2, kind)
    torch.testing.assert_close(forged, torch.tensor([row, row], dtype=dtype), equal_nan=True)


def test_huge_is_finite_but_its_length_overflows_float32():
    row = non_finite(HONEST, 1, "huge")[0]
    assert row.isfinite().all()
    assert (row @ row).isinf()


@pytest.mark.parametrize(("typed", "kind"), [(nan, "nan"), (inf, "inf"), ("huge", "huge")])
def test_the_class_takes_what_hydra_makes_of_the_names(typed, kind):
    adversary = NonFinite(typed)
    updates = world.updates()
    expected = non_finite(updates.rows, 3, kind)
    torch.testing.assert_close(adversary.attack(updates, 3, world.context()), expected, equal_nan=True)


def test_refuses_an_unknown_kind(unchecked):
    with pytest.raises(SettingError, match="one of nan, inf, huge, one_coordinate, got 'zero'"):
        non_finite(HONEST, 1, "zero")
    with pytest.raises(SettingError, match="got '-inf'"):
        NonFinite(-inf)
