from math import inf, nan

import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.adversary.non_finite import NonFinite

HONEST = torch.tensor([[1.0, 2.0], [3.0, 6.0]])


@pytest.mark.parametrize(
    ("kind", "row"), [("nan", [nan, nan]), ("inf", [inf, inf]), ("huge", [1e30, 1e30]), ("one_coordinate", [nan, 4.0])]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_each_kind(kind, row, dtype):
    forged = NonFinite(kind)(HONEST.to(dtype), 2)
    torch.testing.assert_close(forged, torch.tensor([row, row], dtype=dtype), equal_nan=True)


def test_huge_is_finite_but_its_length_overflows_float32():
    row = NonFinite("huge")(HONEST, 1)[0]
    assert row.isfinite().all()
    assert (row @ row).isinf()


@pytest.mark.parametrize(("typed", "kind"), [(nan, "nan"), (inf, "inf"), ("huge", "huge")])
def test_takes_what_hydra_makes_of_the_names(typed, kind):
    assert NonFinite(typed).kind == kind


def test_refuses_an_unknown_kind():
    for kind in ("zero", -inf):
        with pytest.raises(SettingError, match=f"one of nan, inf, huge, one_coordinate, got '{kind}'"):
            NonFinite(kind)
